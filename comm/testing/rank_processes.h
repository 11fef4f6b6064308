// Tests with ranks as processes, which can be killed, stopped, or end.
//
//   RankProcesses ranks(2, Options("gloo"), [](const InitOptions& options, const Process::Say& say) {
//     auto group = InitProcessGroup(options);
//     say("in call");
//     SayStatus(say, (*group)->Barrier());
//     return 0;
//   });
//   ranks[1].AwaitLine("in call");
//   const absl::Duration killed = ranks.Signal(1, SIGKILL);
//   EXPECT_LT(ranks.AwaitStatus(0)->time - killed, absl::Seconds(2));

#ifndef LOCKSTEP_COMM_TESTING_RANK_PROCESSES_H_
#define LOCKSTEP_COMM_TESTING_RANK_PROCESSES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {

// Sends a rank's status from its child process, for RankProcesses::AwaitStatus().
void SayStatus(const Process::Say& say, const absl::Status& status);

// One child process for each rank. They meet in a file of a folder that is removed at the end. This class starts no
// thread and does not call LibTorch in the test's process, so that one test can fork after another. Not thread-safe.
class RankProcesses {
 public:
  // Runs in a rank's process, with its options. Its result is the process's exit code.
  using Body = std::function<int(const InitOptions& options, const Process::Say& say)>;

  // `options` apply to every rank; init_method, rank and world_size are filled in. With `hosts` the ranks are spread
  // over them in order, the same number on each host and one more on the first ones if that does not divide (4 ranks on
  // 3 hosts: 2, 1, 1), and they meet over TCP at the first host.
  RankProcesses(int world_size, InitOptions options, const Body& body, const NetworkHosts* hosts = nullptr);

  int size() const { return static_cast<int>(processes_.size()); }
  Process& operator[](int rank) { return processes_[rank]; }

  // The name in messages: "rank 1 (host a, pid 123)".
  const std::string& name(int rank) const { return names_[rank]; }

  // Blocks until every rank has said `line`. Returns false if one does not.
  bool AwaitAll(const std::string& line);

  // Sends the signal and returns the time.
  absl::Duration Signal(int rank, int number);

  // Waits for the rank's next SayStatus(). Its text is that of absl::Status::ToString().
  std::optional<Process::Line> AwaitStatus(int rank);

 private:
  TemporaryFolder folder_;
  std::vector<Process> processes_;
  std::vector<std::string> names_;
};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_RANK_PROCESSES_H_
