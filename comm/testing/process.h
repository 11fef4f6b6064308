// Processes of a test: what dies, stops or hangs in their place.
//
//   Process child([](const Process::Say& say) { say("ready"); pause(); return 0; });
//   child.AwaitLine("ready");
//   child.Signal(SIGKILL);

#ifndef LOCKSTEP_COMM_TESTING_PROCESS_H_
#define LOCKSTEP_COMM_TESTING_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace lockstep::comm::testing {

// A child of the test's process. Not thread-safe.
class Process {
 public:
  // Sends one line to the test, with the time of the call. Any thread of the child may call it.
  using Say = std::function<void(const std::string& line)>;

  struct Line {
    std::string text;
    absl::Duration time;  // of CLOCK_MONOTONIC, which all processes of a host share
  };

  // Forks. The child runs `body` and ends with exit(), as if main had returned its result; what `body` throws ends it
  // as it would a program. The test must have no second thread at that moment: a fork copies the caller's only.
  explicit Process(const std::function<int(const Say&)>& body);
  // Kills the child if it still runs, and reaps it.
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  int pid() const { return pid_; }

  // The first line, from now on, that begins with `prefix`; those before it are dropped. Nothing if the child ends
  // without it or the patience does.
  absl::optional<Line> AwaitLine(const std::string& prefix, absl::Duration patience = absl::Seconds(20));

  void Signal(int number) const;

  // The status of waitpid(), and when it was there; blocks for `patience` and kills the child then. Until this is
  // called an ended child stays a zombie, whose fate others can see.
  int Wait(absl::Duration patience = absl::Seconds(20));
  absl::Duration end_time() const { return end_time_; }

  static absl::Duration Now();

 private:
  absl::optional<Line> TakeLine();
  bool ReadMore(absl::Duration patience);

  int pid_ = -1;
  int pipe_ = -1;
  std::string unread_;
  absl::optional<int> wait_status_;
  absl::Duration end_time_;
};

// A folder that is removed, with what is in it, at the end.
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
