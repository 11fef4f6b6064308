// Tests whose ranks are processes: where a rank is killed, stopped, or ends.
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
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {

// A rank's status, as its child said it; RankProcesses::AwaitStatus() finds it.
void SayStatus(const Process::Say& say, const absl::Status& status);

// One child a rank. They meet in a file of a folder that is removed at the end. Nothing here starts a thread of the
// test's own process or calls LibTorch in it, so that one test can fork after another. Not thread-safe.
class RankProcesses {
 public:
  // What a rank does in its process, with its options; what it returns is the process's exit code.
  using Body = std::function<int(const InitOptions& options, const Process::Say& say)>;

  // `options` hold for every rank, except for init_method, rank and world_size, which are filled in. With `hosts` the
  // ranks are spread over them in order, the same number on each host and one more on the first where that does not
  // divide (4 ranks on 3 hosts: 2, 1, 1), and they meet over TCP at the first host.
  RankProcesses(int world_size, InitOptions options, const Body& body, const NetworkHosts* hosts = nullptr);

  int size() const { return static_cast<int>(processes_.size()); }
  Process& operator[](int rank) { return processes_[rank]; }

  // As messages name it: "rank 1 (host a, pid 123)".
  const std::string& name(int rank) const { return names_[rank]; }

  // Blocks until every rank has said `line`; false where one does not.
  bool AwaitAll(const std::string& line);

  // Sends the signal, and returns when.
  absl::Duration Signal(int rank, int number);

  // The rank's next SayStatus(): its text is as absl::Status::ToString() has it.
  absl::optional<Process::Line> AwaitStatus(int rank);

 private:
  TemporaryFolder folder_;
  std::vector<Process> processes_;
  std::vector<std::string> names_;
};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_RANK_PROCESSES_H_
