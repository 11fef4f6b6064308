// Membership: which ranks form a generation, and what ends it.

#include "lockstep/launch/job/membership.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/testing/membership_job.h"

namespace lockstep::launch {
namespace {

using testing::At;
using testing::CauseOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MembershipTest;
using testing::State;

TEST_F(MembershipTest, FormsWhenAllAreReady) {
  Make(3);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_FALSE(plan().formed);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2"));
  EXPECT_EQ(plan().generation, 1);
}

TEST_F(MembershipTest, AFailureBeforeAProcessStaysIsNotItsConcern) {
  Make(2);
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_EQ(ending(), "");
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatIsKilledStartsAgain) {
  Make(3);
  job_->Stay();
  job_->Update(1);
  EXPECT_TRUE(plan().stays);
  EXPECT_FALSE(plan().formed);
  ASSERT_TRUE(Fail(1, 2));
  EXPECT_THAT(Said(), ElementsAre("start 1"));
  Ready(0, 3);
  Ready(1, 3);
  ASSERT_TRUE(Fail(0, 4));  // it was ready
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  Ready(2, 5);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 6);
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2"));
  EXPECT_EQ(plan().restarts, 2);
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatExitsEndsTheJob) {
  Make(2);
  Ready(0, 1);
  Failure cause = CauseOf("rank 1 exited with code 2");
  cause.killed = false;
  EXPECT_FALSE(Fail(1, 2, cause));
  EXPECT_EQ(ending(), "");
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAPlaceThatIsGivenUpEndsTheJob) {
  for (const int ready : {0, 1}) {
    Make(ready + 1);
    job_->Stay();
    if (ready == 1) Ready(1, 1);
    for (int i = 0; i < 5; ++i) {
      job_->Update(100 * i);
      ASSERT_TRUE(Fail(0, 100 * i + 50));
    }
    EXPECT_EQ(Said().back(), "give up 0: rank 0 died");
    EXPECT_EQ(verdict().message(),
              absl::StrCat(ready, " of at least ", ready + 1, " rank", ready == 0 ? " is" : "s are",
                           " there, and no other one comes; at its start, rank 0 died"));
  }
}

TEST_F(MembershipTest, SaysWhyNoProcessComesBack) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 2));
  ASSERT_TRUE(Fail(1, 2));
  for (int i = 0; i < 5; ++i) {
    job_->Update(100 * (i + 1));
    for (const int slot : {0, 1}) {
      Fail(slot, 100 * (i + 1), CauseOf("a new process exited with code 1: found no file"));
    }
  }
  job_->Update(1000);
  EXPECT_EQ(verdict().message(),
            "0 of at least 1 rank is there, and no other one comes; at its start, a new process exited with code 1: "
            "found no file; before, rank 0 died; rank 1 died");
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatEndsWithSuccessIsMissed) {
  Make(2);
  Ready(0, 1);
  EXPECT_TRUE(verdict().ok());
  Succeed(1, 2);
  EXPECT_EQ(verdict().message(), "1 of at least 2 ranks are there, and no other one comes");
  Make(2);
  job_->Stay();
  Succeed(0, 1);
  EXPECT_FALSE(finished());
  Succeed(1, 2);
  EXPECT_TRUE(finished());
  EXPECT_TRUE(verdict().ok());
}

// A process may die before any has said how often they may start again.
TEST_F(MembershipTest, RestartsBeforeTheFirstGenerationCount) {
  Make(2);
  job_->Stay();
  ASSERT_TRUE(Fail(1, 1));
  JoinOptions ask;
  ask.max_restarts = 2;
  for (const int slot : {0, 1}) Ask(slot, ask);
  job_->Update(2);
  ASSERT_EQ(plan().generation, 1);
  EXPECT_TRUE(Fail(1, 30));
  EXPECT_FALSE(Fail(0, 60));
  EXPECT_EQ(ending(), "; after 2 restarts");
}

TEST_F(MembershipTest, SurvivorsKeepTheirOrderAndTheNewProcessFollows) {
  StartAll(3);
  ASSERT_TRUE(Fail(0, 20));
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died", "start 0"));
  Ready(2, 20);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 20);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  Ready(0, 22);
  EXPECT_THAT(Said(), ElementsAre("after step 1 2: process 0 is ready"));
  Ready(1, 22);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(2, 22);
  EXPECT_THAT(Said(), ElementsAre("form 1 2 0: process 0 is ready"));
  EXPECT_EQ(plan().generation, 3);
  EXPECT_EQ(plan().restarts, 1);
}

TEST_F(MembershipTest, TheOthersHaveAHeadStart) {
  Membership::Limits limits;
  limits.restarts.head_start = absl::Milliseconds(200);
  Make(3, limits);
  for (int slot = 0; slot < 3; ++slot) Ready(slot, 1);
  Said();
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died"));
  EXPECT_EQ(job_->membership().next_look(), At(20.2));
  EXPECT_TRUE(!plan().SlotsIn(State::kAwaited).empty());
  Ready(1, 20.05);
  Ready(2, 20.05);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  job_->Progress(1, 7);
  job_->Update(20.1);
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  // They do not complete a step in time.
  Fail(1, 30);
  job_->Update(30.19);
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died"));
  job_->Update(30.2);
  EXPECT_THAT(Said(), ElementsAre("start 1"));
  // The last one has nobody to wait for, and neither has a process that was no member.
  Fail(2, 31);
  EXPECT_THAT(Said(), ElementsAre("start 2"));
  Fail(0, 32);
  EXPECT_THAT(Said(), ElementsAre("start 0"));
}

TEST_F(MembershipTest, RanksThatAreTooFewHaveNoHeadStart) {
  Membership::Limits limits;
  limits.restarts.head_start = absl::Milliseconds(200);
  Make(3, limits);
  for (int slot = 0; slot < 3; ++slot) Ready(slot, 1, /*min_ranks=*/3);
  Said();
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died", "start 0"));
}

TEST_F(MembershipTest, ProcessesBeyondMaxRanksAreSpares) {
  Make(4);
  for (int slot = 0; slot < 4; ++slot) Ready(slot, 1, 1, /*max_ranks=*/slot == 3 ? 2 : 3);  // the smallest counts
  EXPECT_THAT(Said(), ElementsAre("form 0 1"));
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0"));
  Ready(1, 20, 1, 2);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  Ready(0, 21, 1, 2);
  EXPECT_THAT(Said(), IsEmpty());
  Succeed(1, 30);
  Succeed(2, 30);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, ANodeWhoseProcessesAreBeyondMaxRanksCounts) {
  Make(2);
  job_->AddNode(2, 0);
  job_->needed = {2, 2};
  for (int slot = 0; slot < 4; ++slot) Ready(slot, 1, 1, /*max_ranks=*/2);
  EXPECT_THAT(Said(), ElementsAre("form 0 1"));
  Fail(0, 20);
  Ready(1, 20, 1, 2);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0", "form 1 2: rank 0 died"));
}

TEST_F(MembershipTest, AMemberThatLeavesByItselfBreaksTheGeneration) {
  StartAll(2);
  Ready(1, 20);
  EXPECT_THAT(Said(), ElementsAre("now 0: rank 1 left generation 1"));
  Ready(0, 20);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 1 left generation 1"));
}

TEST_F(MembershipTest, AnErrorBreaksAGenerationThatIsToEndAfterAStep) {
  Make(3);
  for (int i = 0; i < 3; ++i) Ready(i, 1);
  ASSERT_TRUE(Fail(2, 20));
  Ready(0, 20);
  Ready(1, 20);
  Said();
  Ready(2, 21);
  EXPECT_THAT(Said(), ElementsAre("after step 0 1: process 2 is ready"));
  Ready(0, 22, 1, 0, "sample 7 is broken");
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 2: sample 7 is broken"));
  Ready(1, 22, 1, 0, "the group failed");
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2: rank 0 left generation 2: sample 7 is broken"));
}

TEST_F(MembershipTest, WhoDoesNotLeaveInTimeIsKilled) {
  StartAll(3);
  Fail(0, 20);
  Ready(1, 20);
  Said();
  job_->Update(29.9);
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(job_->membership().next_look(), At(30));
  job_->Update(30);
  EXPECT_THAT(Said(), ElementsAre("kill 2: rank 0 died"));
  job_->Update(31);
  EXPECT_THAT(Said(), IsEmpty());  // once
  ASSERT_TRUE(Fail(2, 31));
  EXPECT_THAT(Said(), ElementsAre("start 2", "form 1: rank 0 died; rank 2 died"));
}

TEST_F(MembershipTest, AMessageAboutAnEarlierGenerationChangesNothing) {
  StartAll(2);
  job_->slot(1).left = 0;
  job_->slot(1).ask.min_ranks = 2;
  job_->Update(20);
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, WithoutSurvivorsAllNewProcessesFormOneGeneration) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 20));
  ASSERT_TRUE(Fail(1, 20));
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0", "start 1"));
  Ready(1, 21);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 25);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 0 died; rank 1 died"));
}

TEST_F(MembershipTest, NamesTheFirstFailures) {
  StartAll(6);
  Ready(5, 20);  // it saw that the group has failed
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Fail(i, 20));
  const std::vector<std::string> said = Said();
  EXPECT_EQ(said.back(), "form 5: rank 0 died; rank 1 died; rank 2 died; and 2 more");
}

TEST_F(MembershipTest, WaitsForTheLeastNumberOfRanks) {
  Make(2);
  Ready(0, 1, 2);
  Ready(1, 1, 2);
  ASSERT_TRUE(Fail(1, 20));
  Ready(0, 20, 2);
  EXPECT_THAT(Said(), ElementsAre("form 0 1", "now 0: rank 1 died", "start 1"));
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 1 died"));
}

TEST_F(MembershipTest, DoesNotWaitForEver) {
  Make(2);
  Ready(0, 1, 2);
  Ready(1, 1, 2);
  ASSERT_TRUE(Fail(1, 20));
  Ready(0, 20, 2);
  job_->Update(20 + 599);
  EXPECT_TRUE(verdict().ok());
  job_->Update(20 + 600);
  EXPECT_EQ(verdict().message(), "1 of at least 2 ranks are there after 10m; before, rank 1 died");
  EXPECT_TRUE(absl::IsDeadlineExceeded(verdict()));
}

TEST_F(MembershipTest, MoreRanksThanThereAreIsAnErrorAtOnce) {
  Make(2);
  Ready(0, 1, 3);
  Ready(1, 1, 3);
  EXPECT_EQ(verdict().message(), "2 of at least 3 ranks are there, and no other one comes");
}

}  // namespace
}  // namespace lockstep::launch
