#include "lockstep/ddp/internal/capture_check.h"

#include "absl/strings/str_cat.h"

namespace lockstep::ddp::internal {
namespace {

// The reason why the step cannot be captured. Empty if it can.
std::string Obstacle(const CapturedStep& step) {
  if (step.layout_may_change) return "the second forward lays the buckets out anew; run two steps before the capture";
  if (!step.averaged) return "";
  if (step.finds_unused)
    return "with Options::find_unused_parameters the host must learn in each step which parameters are used";
  if (step.looks_for_non_finite) return "with Options::non_finite the host reads the gradients";
  if (step.virtual_ranks) return "with Options::virtual_ranks the host seeds the generators of each step";
  if (step.sparse_parameter.empty()) return "";
  return absl::StrCat("the gradient of parameter ", step.sparse_parameter, " is sparse, and the host counts its rows");
}

}  // namespace

absl::Status CheckCapture(int rank, const CapturedStep& step) {
  const std::string obstacle = Obstacle(step);
  if (obstacle.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank ", rank, ": a CUDA graph cannot hold this step: ", obstacle));
}

}  // namespace lockstep::ddp::internal
