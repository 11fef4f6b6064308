#include "lockstep/ddp/internal/capture_check.h"

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

absl::Status Refused(const char* reason) {
  return absl::FailedPreconditionError(std::string("rank 3: a CUDA graph cannot hold this step: ") + reason);
}

TEST(CaptureCheck, LetsAStepBeCaptured) { EXPECT_EQ(CheckCapture(3, {}), absl::OkStatus()); }

TEST(CaptureCheck, NamesEachReasonAgainstIt) {
  CapturedStep step;
  step.sparse_parameter = "table.weight";
  EXPECT_EQ(CheckCapture(3, step),
            Refused("the gradient of parameter table.weight is sparse, and the host counts its rows"));
  step.virtual_ranks = true;
  EXPECT_EQ(CheckCapture(3, step), Refused("with Options::virtual_ranks the host seeds the generators of each step"));
  step.looks_for_non_finite = true;
  EXPECT_EQ(CheckCapture(3, step), Refused("with Options::non_finite the host reads the gradients"));
  step.finds_unused = true;
  EXPECT_EQ(CheckCapture(3, step),
            Refused("with Options::find_unused_parameters the host must learn in each step which parameters are used"));
  step.layout_may_change = true;
  EXPECT_EQ(CheckCapture(3, step),
            Refused("the second forward lays the buckets out anew; run two steps before the capture"));
}

TEST(CaptureCheck, MindsOnlyTheLayoutOfAStepThatIsNotAveraged) {
  CapturedStep step;
  step.averaged = false;
  step.finds_unused = step.looks_for_non_finite = true;
  step.sparse_parameter = "table.weight";
  EXPECT_EQ(CheckCapture(3, step), absl::OkStatus());
  step.layout_may_change = true;
  EXPECT_FALSE(CheckCapture(3, step).ok());
}

}  // namespace
}  // namespace lockstep::ddp::internal
