// Child processes for tests that need a process to die, stop or hang.
//
//   Process child([](const Process::Say& say) { say("ready"); pause(); return 0; });
//   child.AwaitLine("ready");
//   child.Signal(SIGKILL);

#ifndef LOCKSTEP_COMM_TESTING_PROCESS_H_
#define LOCKSTEP_COMM_TESTING_PROCESS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::testing {

// A child of the test's process. Not thread-safe.
class Process {
 public:
  // Sends one line to the test, with the time of the call. May be called from any thread of the child.
  using Say = std::function<void(const std::string& line)>;

  struct Line {
    std::string text;
    absl::Duration time;  // of CLOCK_MONOTONIC, which all processes of a host share
  };

  // Forks. The child runs `body` and calls exit() with its result, as if main had returned it. An exception of `body`
  // ends it as in any program. The test must have only one thread at that moment, since a fork copies only the calling
  // thread.
  explicit Process(const std::function<int(const Say&)>& body);
  // Kills the child if it still runs, and reaps it.
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  int pid() const { return pid_; }

  // Returns the next line that begins with `prefix`, and drops the lines before it. nullopt if the child ends, or
  // `patience` passes, without such a line.
  std::optional<Line> AwaitLine(const std::string& prefix, absl::Duration patience = absl::Seconds(20));

  void Signal(int number) const;

  // Returns the status of waitpid(), and records its time. Blocks for up to `patience` and then kills the child. Until
  // this is called, an ended child stays a zombie, so others can see how it ended.
  int Wait(absl::Duration patience = absl::Seconds(20));
  absl::Duration end_time() const { return end_time_; }

  static absl::Duration Now();

 private:
  std::optional<Line> TakeLine();
  bool ReadMore(absl::Duration patience);

  int pid_ = -1;
  UniqueFd pipe_;
  std::string unread_;
  std::optional<int> wait_status_;
  absl::Duration end_time_;
};

// A folder that the destructor removes with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_PROCESS_H_
