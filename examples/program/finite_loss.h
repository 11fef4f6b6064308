// A loss that has become NaN or infinity, reported once in a run.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// Each rank asks about its own loss after each backward. Through the group's store only the rank that sees it first
// reports it: gradients carry the NaN to the others, which have it one step later.
class FiniteLoss {
 public:
  // `group` may be null. `terminate`: a loss that is not finite is an error.
  FiniteLoss(comm::ProcessGroup* group, bool terminate) : group_(group), terminate_(terminate) {}

  // A line to show, or "". `where` is such as "epoch 3, batch 17". DataLoss: the loss is not finite, and `terminate` is
  // set.
  absl::StatusOr<std::string> Check(double loss, absl::string_view where);

 private:
  comm::ProcessGroup* group_;
  bool terminate_;
  bool known_ = false;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_
