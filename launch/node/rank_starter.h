// Starts the ranks of one attempt: the same program in processes that differ in their environment.

#ifndef LOCKSTEP_LAUNCH_NODE_RANK_STARTER_H_
#define LOCKSTEP_LAUNCH_NODE_RANK_STARTER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/output/output.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

class RankStarter {
 public:
  // Finds the program, and chooses the CPUs of the ranks, the secret, and the port unless `generation` has one. If it
  // chooses the port, it is not `earlier_port`, the one of the attempt before. `options` must outlive the object.
  static absl::StatusOr<RankStarter> Create(const std::vector<std::string>& argv, const LaunchOptions& options,
                                            const NodeStart& start, int earlier_port);

  // The files and numbers that one process of a rank gets.
  struct Ends {
    const UniqueFd& report;  // to which it reports its end
    const UniqueFd& link;    // its end of the control socket (launch/link)
    const RankOutput& output;
    int restarts;  // of the job so far
  };

  absl::StatusOr<Process> Start(int local_rank, const Ends& ends) const;

  // Returns whether the program's own file contains the code of AgentLink, so that its processes may say that they
  // stay. Reads the file.
  bool MayStay() const;

  const std::string& master_addr() const { return place_.master_addr; }
  int master_port() const { return place_.master_port; }

 private:
  explicit RankStarter(const LaunchOptions& options) : options_(&options) {}
  absl::StatusOr<std::map<std::string, std::string>> Variables(int local_rank, const Ends& ends) const;
  // CUDA_VISIBLE_DEVICES as the ranks would have it without virtual_local_rank, or null.
  const char* VisibleDevices() const;

  const LaunchOptions* options_;
  ProcessSpec program_;              // without environment and descriptors
  RankPlace place_;                  // with any local rank
  UniqueFd master_socket_;           // rank 0 inherits it, if it is valid
  UniqueFd cgroup_;                  // the ranks', if it is valid
  std::string job_secret_;           // empty: the ranks get none from here
  std::vector<std::set<int>> cpus_;  // by local rank; empty: they are not bound
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_RANK_STARTER_H_
