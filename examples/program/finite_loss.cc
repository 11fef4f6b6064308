#include "lockstep/examples/program/finite_loss.h"

#include <cmath>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/store/store.h"

namespace lockstep::examples {
namespace {

// The result is also true if the store does not answer: a line too many is better than none.
bool IsFirst(comm::ProcessGroup& group) {
  const auto reporters = comm::Store::FromC10d(group.store(), {}).Add("examples/loss_is_not_finite", 1);
  return !reporters.ok() || *reporters == 1;
}

}  // namespace

absl::StatusOr<std::string> FiniteLoss::Check(double loss, absl::string_view where) {
  if (std::isfinite(loss)) return "";
  const std::string what = absl::StrCat("the loss of ", where, " is ", loss);
  if (terminate_) return absl::DataLossError(absl::StrCat(what, ", at which --terminate-on-nan ends the run"));
  if (known_) return "";
  known_ = true;
  if (group_ && !IsFirst(*group_)) return "";
  return absl::StrCat("warning: rank ", group_ == nullptr ? 0 : group_->rank(), ": ", what,
                      ", and training goes on; --terminate-on-nan ends it");
}

}  // namespace lockstep::examples
