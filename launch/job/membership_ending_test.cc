// Membership: what ends a job, and which failure is named.

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/testing/membership_job.h"

namespace lockstep::launch {
namespace {

using testing::At;
using testing::CauseOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MembershipJob;
using testing::MembershipTest;
using ::testing::Not;

// The next generation is told of the failure that ended the one before.
class OwnFailureTest : public MembershipTest {
 protected:
  void Leave(int slot, double seconds, const std::string& reason, const std::optional<StepFailure>& failure) {
    JoinOptions ask;
    ask.reason = reason;
    ask.failure = failure;
    Ask(slot, ask);
    job_->Update(seconds);
  }
  void Fail(int slot, double seconds, bool killed, bool did_not_leave, bool is_own) {
    Failure failure = CauseOf(absl::StrCat("rank ", slot, " died"));
    failure.killed = killed;
    failure.did_not_leave = did_not_leave;
    failure.time_ns = absl::ToInt64Nanoseconds(absl::Seconds(seconds));
    if (is_own) failure.own = StepFailure{-1, slot, absl::StrCat("cause ", slot)};
    ASSERT_TRUE(MembershipTest::Fail(slot, seconds, failure));
  }
  // "step 30, rank 2: full", of the generation that has formed now.
  std::string Told() {
    for (const MembershipJob::Change& change : job_->Take()) {
      if (change.kind != MembershipJob::Kind::kForm) continue;
      const std::optional<StepFailure>& failure = plan().failure;
      if (!failure) return "nothing";
      return absl::StrCat("step ", failure->step, ", rank ", failure->rank, ": ", failure->cause);
    }
    return "no generation";
  }
};

TEST_F(OwnFailureTest, IsTheErrorOfTheMemberThatMadeItWhoeverLeavesFirst) {
  StartAll(3);
  Leave(0, 2, "rank 2 (host a, pid 5) failed: error of rank 2", std::nullopt);
  Leave(2, 3, "error of rank 2", StepFailure{30, 2, "full"});
  Leave(1, 4, "error of rank 1", StepFailure{30, 1, "empty"});
  EXPECT_EQ(Told(), "step 30, rank 2: full");
  for (const int slot : {0, 1, 2}) Leave(slot, 5, "rank 1: all_reduce #4 timed out", std::nullopt);
  EXPECT_EQ(Told(), "nothing");
}

TEST_F(OwnFailureTest, SurvivesAnotherLeader) {
  StartAll(2);
  Leave(1, 2, "error of all ranks", StepFailure{30, -1, "it is not finite"});
  job_->LeadAnew(3);
  Leave(0, 3, "error of all ranks", StepFailure{30, -1, "it is not finite"});
  EXPECT_EQ(Told(), "step 30, rank -1: it is not finite");
}

TEST_F(OwnFailureTest, IsThatOfTheProcessThatFailedFirst) {
  StartAll(3);
  Fail(1, 3, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Fail(2, 2, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Leave(0, 4, "error of rank 0", StepFailure{30, 0, "full"});
  EXPECT_EQ(Told(), "step -1, rank 2: cause 2");
}

TEST_F(OwnFailureTest, IsNothingIfTheFirstWasKilledFromOutsideUnlessAnotherWasStuck) {
  StartAll(3);
  Fail(1, 2, /*killed=*/true, /*did_not_leave=*/false, /*is_own=*/false);
  Fail(2, 3, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Leave(0, 4, "rank 1 died", std::nullopt);
  EXPECT_EQ(Told(), "nothing");
  for (const int slot : {1, 2}) Ready(slot, 5);
  Leave(0, 6, "", std::nullopt);
  ASSERT_EQ(plan().members.size(), 3);
  Said();
  Fail(1, 20, /*killed=*/true, /*did_not_leave=*/false, /*is_own=*/false);
  Fail(2, 31, /*killed=*/false, /*did_not_leave=*/true, /*is_own=*/true);
  Leave(0, 32, "rank 1 died", std::nullopt);
  EXPECT_EQ(Told(), "step -1, rank 2: cause 2");
}

TEST_F(MembershipTest, EndsAfterGenerationsWithoutAStep) {
  StartAll(2);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(Fail(1, 2 + i)) << i;
    Ready(0, 2 + i);
    Ready(1, 2 + i);
    Ready(0, 2 + i);
    ASSERT_THAT(Said(), ElementsAre("now 0: rank 1 died", "start 1", "form 0: rank 1 died",
                                    "after step 0: process 1 is ready", "form 0 1: process 1 is ready"));
  }
  EXPECT_FALSE(Fail(1, 12));
  EXPECT_EQ(ending(), "; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfMembersLeaveAgainAndAgain) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(verdict().ok()) << i;
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_EQ(verdict().message(),
            "rank 1 left generation 10; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfAProcessSaysSo) {
  StartAll(3);
  job_->slot(1).ends_job = "sample 7 is broken";
  job_->Update(1);
  job_->slot(0).ends_job = "sample 8 is broken";
  job_->Update(1);
  EXPECT_EQ(verdict(), absl::AbortedError("sample 7 is broken"));
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, AStepIsProgress) {
  StartAll(2);
  for (int i = 0; i < 50; ++i) {
    if (i % 4 == 3) job_->Progress(0, i);
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    Ready(1, 2);
    Ready(0, 2);
  }
}

// Whenever the process that was started again has come, one fails; but alone, the other one has completed a step.
TEST_F(MembershipTest, AStepOfAGenerationThatEndedByPlanIsProgress) {
  StartAll(2);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    job_->Progress(0, i);
    Ready(1, 2);
    Ready(0, 2);
  }
}

TEST_F(MembershipTest, TheSameStepAgainIsNoProgress) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    job_->Progress(0, 7);
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_FALSE(Fail(1, 2));
}

TEST_F(MembershipTest, GoesOnWithTheTimesOfEarlierRestarts) {
  Membership::Limits limits;
  limits.restarts.max_restarts = 1;
  limits.restarts.window = absl::Minutes(1);
  for (const double made : {0, 90}) {
    Make(2, limits, 0, {At(made)}, 100);
    for (const int slot : {0, 1}) Ready(slot, 100);
    ASSERT_EQ(plan().generation, 1);
    EXPECT_EQ(Fail(1, 120), made == 0) << "made at " << made << " s";
  }
}

TEST_F(MembershipTest, HasABudgetOfRestarts) {
  Membership::Limits limits;
  limits.restarts.max_restarts = 2;
  Make(2, limits);
  Ready(0, 1);
  Ready(1, 1);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(Fail(1, 100 * i));
    Ready(0, 100 * i);
    Ready(1, 100 * i);
    Ready(0, 100 * i);
  }
  Said();
  EXPECT_FALSE(Fail(1, 300));
  EXPECT_EQ(ending(), "; after 2 restarts");
  Ready(0, 300);
  for (const std::string& said : Said()) EXPECT_THAT(said, Not(HasSubstr("start"))) << "after the end";
}

TEST_F(MembershipTest, GivesUpASlotWhoseProcessesFailAtTheirStart) {
  StartAll(2);
  ASSERT_TRUE(Fail(1, 100));
  Ready(0, 100);
  Said();
  double now = 100;
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(Fail(1, now += 0.5));
    if (i == 5) break;
    const absl::Time look = job_->membership().next_look();
    if (look != absl::InfiniteFuture()) now = absl::ToUnixSeconds(look) + 1;
    job_->Update(now);
    ASSERT_THAT(Said(), ElementsAre("start 1")) << i;
  }
  EXPECT_THAT(Said(), ElementsAre("give up 1: rank 1 died"));
  Succeed(0, now);
  EXPECT_TRUE(finished());
}

}  // namespace
}  // namespace lockstep::launch
