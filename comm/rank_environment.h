// Who a process is among the ranks, read from the environment variables that torchrun and Lockstep's launcher set.

#ifndef LOCKSTEP_COMM_RANK_ENVIRONMENT_H_
#define LOCKSTEP_COMM_RANK_ENVIRONMENT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace lockstep::comm {

// Each field is the variable of that name; nullopt or the default where it is not set.
struct RankEnvironment {
  absl::optional<int> rank;        // RANK
  absl::optional<int> world_size;  // WORLD_SIZE
  int local_rank = 0;              // LOCAL_RANK: the rank among those of this node
  int local_world_size = 1;        // LOCAL_WORLD_SIZE
  std::string master_addr;         // MASTER_ADDR: where the store listens; empty if not set
  int master_port = -1;            // MASTER_PORT; -1 if not set

  // TORCHELASTIC_USE_AGENT_STORE: the launcher's agent owns the store at MASTER_ADDR:MASTER_PORT, and rank 0 is a
  // client like the others.
  bool use_agent_store = false;
  int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT: how often the agent has restarted the ranks over that store

  // LOCKSTEP_MASTER_LISTEN_FD: a socket that rank 0 inherited, bound to MASTER_PORT already; -1 if not set.
  int master_listen_fd = -1;
};

// The value of an environment variable, or nullopt.
using EnvironmentLookup = std::function<absl::optional<std::string>(absl::string_view name)>;

// This process's environment.
absl::optional<std::string> ProcessEnvironment(absl::string_view name);

// InvalidArgument, naming the variable and its value, for a number that is none or is out of range, and for a RANK that
// is not below WORLD_SIZE or a LOCAL_RANK that is not below LOCAL_WORLD_SIZE.
absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup = ProcessEnvironment);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RANK_ENVIRONMENT_H_
