// The environment variables of one rank, the same as torchrun's.

#ifndef LOCKSTEP_LAUNCH_NODE_RANK_VARIABLES_H_
#define LOCKSTEP_LAUNCH_NODE_RANK_VARIABLES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch {

// Names the descriptor of a listening socket at MASTER_PORT; only rank 0 of a launch with pass_master_socket has it.
inline constexpr char kMasterSocketVariable[] = "LOCKSTEP_MASTER_LISTEN_FD";

// The names in //comm/secret:job_secret.
inline constexpr char kJobSecretVariable[] = "LOCKSTEP_JOB_SECRET";
inline constexpr char kJobSecretFileVariable[] = "LOCKSTEP_JOB_SECRET_FILE";

// The call of Spawn that started a process; see spawn.cc.
inline constexpr char kSpawnCallVariable[] = "LOCKSTEP_SPAWN_CALL";
inline constexpr char kSpawnResultsVariable[] = "LOCKSTEP_SPAWN_RESULTS";

struct RankPlace {
  int local_rank = 0;
  int nproc_per_node = 1;
  int first_rank = 0;  // rank of local rank 0
  int world_size = 1;
  int node_rank = 0;
  int nnodes = 1;
  std::string master_addr;
  int master_port = 0;
  std::string run_id;
  std::string role = "default";
  int restart_count = 0;
  int max_restarts = 0;
  bool virtual_local_rank = false;  // LOCAL_RANK is 0
};

// The variables that torchrun sets for this rank. They include OMP_NUM_THREADS=1 if several ranks are on the node and
// `omp_num_threads_is_set` is false: otherwise every rank would start a thread for each core.
std::map<std::string, std::string> RankVariables(const RankPlace& place, bool omp_num_threads_is_set);

// The value of CUDA_VISIBLE_DEVICES that leaves a rank the device of its local rank alone. `visible` is the variable's
// value now, or null if it is not set: then the devices are 0, 1, 2 and so on. InvalidArgument if it has fewer devices.
absl::StatusOr<std::string> DeviceOf(int local_rank, const char* visible);

// A secret for the ranks of one job, from the kernel, in hexadecimal; see docs/security.md. Empty if `environment`,
// which the ranks get, or this process's environment has one, and with several nodes, which all need the same secret.
std::string NewJobSecret(int nnodes, const std::map<std::string, std::string>& environment);

// This process's environment as "NAME=value", changed by `variables`, without the variables that another launcher set
// for this process alone.
std::vector<std::string> ChangedEnvironment(const std::map<std::string, std::string>& variables);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_RANK_VARIABLES_H_
