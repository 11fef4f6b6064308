#include "lockstep/elastic/internal/failure_budget.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

std::optional<std::string> VerdictAfter(FailureBudget& budget, const Failure& failure) {
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

TEST(OwnFailure, ReadsTheLaunchersSentence) {
  const auto failure = OwnFailure(
      "rank 2 (local rank 3, pid 47) exited with code 1: full; rank 0 (local rank 0, pid 5) exited with code 9");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->cause, "exited with code 1: full");
  EXPECT_TRUE(OwnFailure("rank 2 (local rank 3, pid 47) was killed by signal 11 (SIGSEGV)"));
}

TEST(OwnFailure, FindsTheTextOfAnErrorInWhatAnotherRankSays) {
  const std::string text = ErrorText({30, 2, "sample 240 is broken: step 7"});
  EXPECT_EQ(text, "error of rank 2 in step 30: sample 240 is broken: step 7");
  for (const std::string& reason :
       {"rank 2 left generation 3: " + text,
        "rank 0 left generation 3: rank 0: all_reduce #4: rank 2 (host a, pid 5) failed: " + text}) {
    const auto failure = OwnFailure(reason);
    ASSERT_TRUE(failure) << reason;
    EXPECT_EQ(failure->rank, 2);
    EXPECT_EQ(failure->step, 30);
    EXPECT_EQ(failure->cause, "sample 240 is broken: step 7");
  }
}

TEST(HeardFailure, IsOfTheRankThatTheErrorNames) {
  const auto failure = HeardFailure("rank 3 (host a, pid 47): /tmp/7.pt: no space left");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 3);
  EXPECT_EQ(failure->cause, "/tmp/7.pt: no space left");
  for (const char* text : {"", "no space left", "rank 3: no space left", "rank 3 (host a, pid 47) failed: full",
                           "all_reduce #4: rank 3 (host a, pid 47): full"}) {
    EXPECT_FALSE(HeardFailure(text)) << text;
  }
}

TEST(OwnFailure, MayBeOfAllRanks) {
  FailureBudget budget(1, 10);
  const auto failure = OwnFailure("rank 2 left generation 3: " + ErrorText({30, -1, "it is not finite"}));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, -1);
  EXPECT_EQ(
      VerdictAfter(budget, *failure),
      "all ranks failed in step 30: it is not finite; the job ends, since this cause came 1 times within 10 steps: "
      "all ranks in step 30");
}

TEST(OwnFailure, IsReadOnSeveralHostsToo) {
  const auto failure = OwnFailure("host a: rank 2 (local rank 0, pid 47) exited with code 3; host b: rank 0 (local");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->cause, "exited with code 3");
}

TEST(OwnFailure, IsOneOfARankThatWasStuckAlsoIfAnotherOneDiedBefore) {
  const std::string stuck =
      "rank 2 (local rank 3, pid 47) was killed by signal 9 (SIGKILL): it had not left generation 4 in time";
  for (const std::string& reason :
       {stuck, "rank 0 (local rank 0, pid 5) was killed by signal 9 (SIGKILL); " + stuck, "host a: " + stuck}) {
    const auto failure = OwnFailure(reason);
    ASSERT_TRUE(failure) << reason;
    EXPECT_EQ(failure->rank, 2);
    EXPECT_EQ(failure->cause, "was killed by signal 9 (SIGKILL): it had not left generation 4 in time");
  }
}

TEST(OwnFailure, IsNotOneThatCameFromOutside) {
  for (const char* reason : {"rank 2 (local rank 3, pid 47) was killed by signal 9 (SIGKILL)", "process 2 is ready", "",
                             "rank 0 left generation 3: rank 0: all_reduce #4 timed out"}) {
    EXPECT_FALSE(OwnFailure(reason)) << reason;
  }
}

}  // namespace
}  // namespace lockstep::elastic::internal
