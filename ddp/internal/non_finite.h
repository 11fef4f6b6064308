#ifndef LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_
#define LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {

// Whose gradients made the averages of the parameters `in_sum` not finite. `mine`: the parameters whose gradient was
// not on this rank. Through the group's store: every rank must call it, which all do since they see the same averages.
// Where Python ranks are in the group only this rank's own part is known.
absl::StatusOr<std::vector<NonFiniteGradient>> WhoseNonFinite(comm::ProcessGroup& group,
                                                              const std::vector<std::string>& in_sum,
                                                              const std::vector<std::string>& mine);

// DataLoss: "the gradient of fc.weight is not finite on rank 1; ...".
absl::Status NonFiniteError(const std::vector<NonFiniteGradient>& found);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_NON_FINITE_H_
