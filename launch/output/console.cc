#include "lockstep/launch/output/console.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

bool ColorsAreWanted() {
  const char* no_color = getenv("NO_COLOR");
  return !no_color || !*no_color;
}

}  // namespace

Console::Console(int fd) {
  struct stat info;
  discards_ = fstat(fd, &info) != 0;
  if (discards_) return;
  is_file_ = S_ISREG(info.st_mode);
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    const std::string path = absl::StrCat("/proc/self/fd/", fd);
    fd_ = AboveStdio(UniqueFd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)));
    non_blocking_ = fd_.valid();
  }
  if (!fd_.valid()) fd_ = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  discards_ = !fd_.valid();
  colored_ = !discards_ && isatty(fd_.get()) && ColorsAreWanted();
}

// A pipe, a socket or a terminal that is ready takes PIPE_BUF bytes at once.
bool Console::CanWrite() const {
  pollfd ready = {fd_.get(), POLLOUT, 0};
  return is_file_ || non_blocking_ || poll(&ready, 1, 0) == 1;
}

// Whole lines of up to PIPE_BUF bytes, which a pipe takes at once: other writers' lines do not come between.
size_t Console::NextPiece(size_t start) const {
  const size_t left = lines_.size() - start;
  if (is_file_ || left <= PIPE_BUF) return left;
  const size_t last_end = lines_.rfind('\n', start + PIPE_BUF - 1);
  return last_end == std::string::npos || last_end < start ? PIPE_BUF : last_end + 1 - start;
}

int Console::Write() {
  if (discards_) lines_.clear();
  size_t written = 0;
  int error = 0;
  while (error == 0 && written < lines_.size() && CanWrite()) {
    const ssize_t n = write(fd_.get(), lines_.data() + written, NextPiece(written));
    if (n >= 0) written += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) error = errno;
  }
  lines_.erase(0, written);
  if (error == 0 || error == EAGAIN) return 0;
  Discard();
  return error;
}

void Console::Discard() {
  discards_ = true;
  lines_.clear();
}

}  // namespace lockstep::launch
