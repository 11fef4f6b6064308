// Reads the variables of a scheduler about the nodes of a job: srun, Open MPI, PMI, or RANK and WORLD_SIZE of a
// Kubernetes operator.

#ifndef LOCKSTEP_LAUNCH_FLAGS_SCHEDULER_H_
#define LOCKSTEP_LAUNCH_FLAGS_SCHEDULER_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/launch/flags/settings.h"

namespace lockstep::launch {

// Compares the flags with the variables in `settings->own_environment`. If srun starts one launcher on each of several
// nodes, it sets the options that are not given: nnodes, node_rank (SLURM_NODEID), master_addr ($MASTER_ADDR, or the
// first host of the step) and master_port ($MASTER_PORT, or 15000 + SLURM_JOB_ID % 10000), as comm/environment does for
// ranks. Returns one line that says so, "" if nothing was set.
//
// With a rendezvous it sets nothing: every launcher finds the others there.
//
// InvalidArgument if the variables say that there are several launchers or nodes, but neither `nnodes` nor `standalone`
// is given: every launcher would start a separate job. The message names the variables and the flags to pass. Within a
// rank of a launcher the variables are that launcher's, and say nothing about a launch there.
absl::StatusOr<std::string> FillFromScheduler(const GivenFlags& given, Settings* settings);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_SCHEDULER_H_
