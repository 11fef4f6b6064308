// The two list notations of Slurm's environment variables.

#ifndef LOCKSTEP_COMM_ENVIRONMENT_INTERNAL_SLURM_H_
#define LOCKSTEP_COMM_ENVIRONMENT_INTERNAL_SLURM_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::comm::internal {

// The first host of a list such as "n[001-003,7],m2" ("n001"), as in SLURM_JOB_NODELIST; nullopt for no such list.
std::optional<std::string> FirstHost(absl::string_view list);

// How many tasks the node with this number has by a list such as "2(x3),1", as in SLURM_TASKS_PER_NODE; nullopt for no
// such list, or one that ends before the node.
std::optional<int> TasksOnNode(absl::string_view list, int node);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_ENVIRONMENT_INTERNAL_SLURM_H_
