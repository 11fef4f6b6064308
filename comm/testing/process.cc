#include "lockstep/comm/testing/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"

namespace lockstep::comm::testing {
namespace {

void WriteLine(int fd, const std::string& text) {
  // Short enough for one atomic write, whichever thread writes.
  std::string line = absl::StrCat(absl::ToInt64Nanoseconds(Process::Now()), " ",
                                  absl::StrReplaceAll(text.substr(0, 3000), {{"\n", " "}}), "\n");
  if (write(fd, line.data(), line.size()) < 0) _exit(99);  // the test is gone
}

}  // namespace

absl::Duration Process::Now() { return absl::Nanoseconds(MonotonicNanos()); }

Process::Process(const std::function<int(const Say&)>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  pipe_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  fflush(nullptr);  // the parent prints its buffered output, not the child
  pid_ = fork();
  if (pid_ < 0) abort();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pipe_.Close();
    // On a separate thread an exception of the body finds no handler, as in a program's main, so nothing is unwound.
    int code = 0;
    std::thread([&] { code = body([fd = write_end.get()](const std::string& line) { WriteLine(fd, line); }); }).join();
    exit(code);
  }
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pipe_(std::move(other.pipe_)),
      unread_(std::move(other.unread_)),
      wait_status_(other.wait_status_),
      end_time_(other.end_time_) {}

Process::~Process() {
  if (pid_ < 0) return;
  if (!wait_status_) {
    Signal(SIGKILL);
    Wait();
  }
}

void Process::Signal(int number) const {
  // The pid of a reaped child may belong to another process.
  if (!wait_status_) kill(pid_, number);
}

std::optional<Process::Line> Process::TakeLine() {
  const size_t end = unread_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  const size_t space = line.find(' ');
  int64_t nanoseconds = 0;
  if (space == std::string::npos || !absl::SimpleAtoi(line.substr(0, space), &nanoseconds)) return Line{line, {}};
  return Line{line.substr(space + 1), absl::Nanoseconds(nanoseconds)};
}

bool Process::ReadMore(absl::Duration patience) {
  pollfd waited = {pipe_.get(), POLLIN, 0};
  char bytes[4096];
  if (poll(&waited, 1, PollTimeout(patience)) <= 0) return false;
  const ssize_t size = read(pipe_.get(), bytes, sizeof(bytes));
  if (size > 0) unread_.append(bytes, size);
  return size > 0;
}

std::optional<Process::Line> Process::AwaitLine(const std::string& prefix, absl::Duration patience) {
  const absl::Duration deadline = Now() + patience;
  while (true) {
    while (std::optional<Line> line = TakeLine()) {
      if (absl::StartsWith(line->text, prefix)) return line;
    }
    if (!ReadMore(deadline - Now())) return std::nullopt;
  }
}

int Process::Wait(absl::Duration patience) {
  if (wait_status_) return *wait_status_;
  const absl::Duration deadline = Now() + patience;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Now() > deadline) kill(pid_, SIGKILL);
    absl::SleepFor(absl::Milliseconds(1));
  }
  end_time_ = Now();
  wait_status_ = status;
  return status;
}

TemporaryFolder::TemporaryFolder() {
  const char* base = getenv("TEST_TMPDIR");
  path_ = absl::StrCat(base ? base : "/tmp", "/lockstep_XXXXXX");
  if (!mkdtemp(&path_[0])) abort();
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::comm::testing
