// The notations of Slurm's environment variables.

#ifndef LOCKSTEP_BASE_SLURM_H_
#define LOCKSTEP_BASE_SLURM_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// The first host of a list such as "n[001-003,7],m2" ("n001"), as in SLURM_JOB_NODELIST; nullopt for no such list.
std::optional<std::string> FirstSlurmHost(absl::string_view list);

// How many tasks the node with this number has by a list such as "2(x3),1", as in SLURM_TASKS_PER_NODE; nullopt for no
// such list, or one that ends before the node.
std::optional<int> SlurmTasksOnNode(absl::string_view list, int node);

// The port of a job whose number is `job_id`, as in SLURM_JOB_ID, if nobody has chosen one: 15000 + job_id % 10000, the
// same in every process of the job. Two jobs may get the same port. nullopt if it is not a number.
std::optional<int> SlurmPort(absl::string_view job_id);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SLURM_H_
