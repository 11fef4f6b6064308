// Reports a loss that has become NaN or infinite, once in a run.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// Each rank checks its loss after each backward. Only the first rank to find it reports it, by agreement through the
// group's store: gradients spread the NaN to the other ranks, which find it one step later.
class FiniteLoss {
 public:
  // `group` may be null. `terminate`: whether a loss that is not finite is an error.
  FiniteLoss(comm::ProcessGroup* group, bool terminate) : group_(group), terminate_(terminate) {}

  // Returns a line to show, or "". `where` is for example "epoch 3, batch 17". DataLoss: the loss is not finite and
  // `terminate` is set.
  absl::StatusOr<std::string> Check(double loss, absl::string_view where);

 private:
  comm::ProcessGroup* group_;
  bool terminate_;
  bool known_ = false;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FINITE_LOSS_H_
