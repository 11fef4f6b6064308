// From a generation of the launcher to a process group.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_
#define LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/watch/watch.h"
#include "lockstep/tools/launch/agent_link/agent_link.h"

namespace lockstep::elastic::internal {

// Meets the other ranks of `generation`. Sets this process's environment variables of torchrun to its place in the
// generation, so call it while no other thread reads the environment. Errors: as of comm::InitProcessGroup(), which gets
// `interruption` and `on_stall`.
absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> FormGroup(const launch::RankGeneration& generation,
                                                              const std::string& backend, absl::Duration timeout,
                                                              const std::function<absl::Status()>& interruption,
                                                              const std::function<void(const comm::Stall&)>& on_stall);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_FORM_GROUP_H_
