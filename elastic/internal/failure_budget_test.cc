#include "lockstep/elastic/internal/failure_budget.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

std::optional<std::string> VerdictAfter(FailureBudget& budget, const launch::StepFailure& failure) {
  budget.Add(failure);
  return budget.Verdict();
}

TEST(FailureBudget, EndsTheJobWithTheThirdFailureByOneCause) {
  FailureBudget budget(3, 10);
  EXPECT_EQ(budget.Verdict(), std::nullopt);
  EXPECT_EQ(VerdictAfter(budget, {17, 2, "exited with code 1: image 4 is broken"}), std::nullopt);
  EXPECT_EQ(VerdictAfter(budget, {17, 0, "exited with code 1: the disk is full"}), std::nullopt);
  EXPECT_EQ(VerdictAfter(budget, {18, 1, "exited with code 1: image 7 is broken"}), std::nullopt);
  EXPECT_EQ(VerdictAfter(budget, {19, 0, "exited with code 1: image 12 is broken"}),
            "rank 0 failed in step 19: exited with code 1: image 12 is broken; the job ends, since this cause came 3 "
            "times within 10 steps: rank 2 in step 17, rank 1 in step 18, rank 0 in step 19");
}

TEST(FailureBudget, ForgetsFailuresOfStepsLongAgo) {
  FailureBudget budget(2, 10);
  for (int64_t step = 0; step < 1000; step += 11) EXPECT_EQ(VerdictAfter(budget, {step, 0, "x"}), std::nullopt);
  EXPECT_EQ(budget.failures().size(), 1);
  EXPECT_NE(VerdictAfter(budget, {1000, 0, "x"}), std::nullopt);
}

TEST(FailureBudget, IsTheSameOnARankThatCameLater) {
  FailureBudget old(2, 10), fresh(2, 10);
  EXPECT_EQ(VerdictAfter(old, {5, 0, "x"}), std::nullopt);
  fresh.Restore(old.failures());
  EXPECT_NE(VerdictAfter(fresh, {6, 1, "x"}), std::nullopt);
}

TEST(FailureBudget, MayBeWithoutLimit) {
  FailureBudget budget(0, 10);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(VerdictAfter(budget, {5, 0, "x"}), std::nullopt);
}

TEST(FailureBudget, CountsFailuresOfAllRanks) {
  FailureBudget budget(1, 10);
  EXPECT_EQ(
      VerdictAfter(budget, {30, -1, "it is not finite"}),
      "all ranks failed in step 30: it is not finite; the job ends, since this cause came 1 times within 10 steps: "
      "all ranks in step 30");
}

TEST(ErrorText, NamesTheRankAndTheStep) {
  EXPECT_EQ(ErrorText({30, 2, "sample 240 is broken: step 7"}),
            "error of rank 2 in step 30: sample 240 is broken: step 7");
  EXPECT_EQ(ErrorText({30, -1, "it is not finite"}), "error of all ranks in step 30: it is not finite");
}

}  // namespace
}  // namespace lockstep::elastic::internal
