// A rank for suite launch of compare: it says in a FIFO when its main began, and waits for its end.
//
//   launch_rank FIFO
//
// Its line is "<rank> <restart count> <pid> <CLOCK_MONOTONIC in ns>". After SIGUSR1 it exits with 1. It does not use
// LibTorch, nor flags: the time to start it should be small beside the time of the launcher.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

namespace {

// It ends then, whatever became of the launcher and of compare.
constexpr unsigned kLifetimeSeconds = 300;

const char* Variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "-1";
}

}  // namespace

int main(int argc, char** argv) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc != 2) {
    fprintf(stderr, "usage: launch_rank FIFO\n");
    return 2;
  }
  alarm(kLifetimeSeconds);
  signal(SIGUSR1, [](int) { _exit(1); });
  char line[128];
  const int size = snprintf(line, sizeof(line), "%s %s %d %lld\n", Variable("RANK"),
                            Variable("TORCHELASTIC_RESTART_COUNT"), getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
  const int fifo = open(argv[1], O_WRONLY | O_CLOEXEC);
  if (fifo < 0 || write(fifo, line, size) != size) {
    perror("launch_rank: cannot write to the FIFO");
    return 2;
  }
  for (;;) pause();
}
