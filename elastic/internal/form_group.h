// From a generation of the launcher to a process group.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_
#define LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/link/agent_link.h"

namespace lockstep::elastic::internal {

// The place of a rank in a generation of the launcher. The result takes generation.listen_fd.
comm::RankEnvironment EnvironmentOf(launch::RankGeneration& generation);

// The one generation of ranks that do not regroup: of torchrun, srun or mpirun, or of one process by itself, whose
// store listens on the loopback interface. InvalidArgument: see comm::ReadRankEnvironment().
// ResourceExhausted: no descriptor or port is free.
struct FixedGeneration {
  launch::RankGeneration generation;
  comm::RankEnvironment environment;
};
absl::StatusOr<FixedGeneration> ReadFixedGeneration(const comm::EnvironmentLookup& lookup,
                                                    const comm::ExplicitRank& explicit_rank = {});

// Meets the other ranks. `number` is the generation's. Errors: as of comm::InitProcessGroup().
absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> FormGroup(comm::InitOptions options, int64_t number);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_
