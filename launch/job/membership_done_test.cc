// Membership: ranks that have done their work, and spares.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/testing/membership_job.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MembershipTest;

TEST_F(MembershipTest, FinishesWhenAllMembersHave) {
  StartAll(3);
  Succeed(0, 20);
  EXPECT_FALSE(finished());
  Succeed(2, 20);
  Succeed(1, 20);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, NothingStartsWhenAllHaveDoneTheirWork) {
  StartAll(3);
  for (int slot = 0; slot < 3; ++slot) Done(slot, 2, /*all=*/false);
  EXPECT_TRUE(plan().complete);
  EXPECT_EQ(plan().LateFailures(), "");
  EXPECT_TRUE(Fail(1, 3));
  Succeed(0, 4);
  job_->Update(100);  // one takes long to end
  EXPECT_FALSE(finished());
  EXPECT_TRUE(Fail(2, 100));
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 1 died; rank 2 died");
}

TEST_F(MembershipTest, OneMaySayForAllThatTheirWorkIsDone) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 2));        // it had no time to say so
  EXPECT_FALSE(plan().complete);  // slot 2 may have to do its work again
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Done(2, 2);
  EXPECT_TRUE(plan().complete);
  Ready(1, 3);
  Succeed(0, 3);
  Succeed(2, 3);
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 1 died");
}

TEST_F(MembershipTest, OneThatHasNotDoneItsWorkStartsAgain) {
  StartAll(3);
  Done(0, 2, /*all=*/false);
  Done(2, 2, /*all=*/false);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_FALSE(plan().complete);
  EXPECT_THAT(Said(), ElementsAre("start 1"));
}

TEST_F(MembershipTest, OneThatHasDoneItsWorkIsNotWaitedFor) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Ready(2, 4);
  EXPECT_THAT(Said(), ElementsAre("form 2: rank 1 died"));
  job_->Update(100);
  Done(2, 100);
  EXPECT_TRUE(plan().complete);
  Succeed(2, 101);
  EXPECT_FALSE(finished());
  EXPECT_TRUE(Fail(0, 101));
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 0 died");
}

TEST_F(MembershipTest, OneThatHasDoneItsWorkAndDiesBeforeTheOthersHaveIsMissed) {
  StartAll(2);
  Done(0, 2, /*all=*/false);
  ASSERT_TRUE(Fail(0, 3));
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0"));
  Ready(1, 4);
  EXPECT_THAT(Said(), ElementsAre("form 1: rank 0 died"));
}

TEST_F(MembershipTest, ANodeThatIsLostAfterTheWorkIsNotMissed) {
  Make(1);
  job_->AddNode(1, 0);
  job_->needed = {2, 3};
  for (const int slot : {0, 1}) Ready(slot, 1);
  for (const int slot : {0, 1}) Done(slot, 2);
  Said();
  job_->LoseNode("host b was lost", 3);
  job_->Update(3);
  Succeed(0, 4);
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "host b was lost");
}

TEST_F(MembershipTest, ANodeWhoseRanksHaveDoneTheirWorkCountsForTheOthers) {
  Make(1);
  job_->AddNode(2, 0);
  job_->needed = {2, 3};
  for (const int slot : {0, 1, 2}) Ready(slot, 1);
  Done(0, 2);
  Succeed(0, 3);
  ASSERT_TRUE(Fail(2, 3));
  Said();
  Ready(1, 4);
  EXPECT_THAT(Said(), ElementsAre("form 1: rank 2 died"));
}

// World::Run() is called again.
TEST_F(MembershipTest, RanksMayDoMoreWork) {
  StartAll(3);
  for (const int slot : {0, 1, 2}) Done(slot, 2);
  ASSERT_TRUE(Fail(2, 3));
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 4);
  EXPECT_FALSE(plan().complete);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "start 2"));
  job_->Update(100);  // what the other does between its works may take long
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 2 died"));
  Done(0, 101);
  Done(1, 101);
  EXPECT_TRUE(plan().complete);
}

TEST_F(MembershipTest, ARankMayAskForMoreWorkBeforeAnotherOneHasSaidThatItsWorkIsDone) {
  StartAll(2);
  Done(0, 2);
  Ready(0, 2);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1"));
  Done(1, 2);
  job_->Update(100);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 0 left generation 1"));
  Done(1, 101);
  Done(0, 101);
  EXPECT_TRUE(plan().complete);
}

TEST_F(MembershipTest, ANewProcessThatIsNotNeededDoesNotHoldUpTheEnd) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 20));
  Ready(1, 20);
  Ready(0, 21);  // rank 1 ends instead of leaving the generation for it
  Succeed(1, 22);
  EXPECT_TRUE(finished());
}

// Rank 0 was writing the last file, say.
TEST_F(MembershipTest, WhatAMemberOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  Succeed(1, 20);
  ASSERT_TRUE(Fail(0, 21));
  EXPECT_FALSE(finished());
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  Ready(0, 22);
  EXPECT_THAT(Said(), ElementsAre("form 0: rank 0 died"));
  Succeed(0, 23);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, WhatAMemberThatHadLeftOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  Ask(0, {});
  job_->Update(20);
  ASSERT_TRUE(Fail(0, 21));
  Succeed(1, 22);
  EXPECT_FALSE(finished());
  Ready(0, 23);
  Said();
  Succeed(0, 24);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, AProcessThatIsBeyondMaxRanksAfterItWasARankDoesNotHoldUpTheEnd) {
  StartAll(2);
  for (int slot = 0; slot < 2; ++slot) Ready(slot, 20, 1, /*max_ranks=*/1);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "form 0: rank 0 left generation 1"));
  Succeed(0, 21);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, ASpareTakesThePlaceOfAMemberAtOnce) {
  Make(2, {}, /*spares=*/1);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 2"));
  Ready(1, 1);
  EXPECT_THAT(Said(), IsEmpty());
  ASSERT_TRUE(Fail(0, 20));
  Ready(2, 20);
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 0 died", "start 0", "form 2 1: rank 0 died"));
  EXPECT_EQ(plan().slots[2].local_rank, 1);
  EXPECT_EQ(plan().slots[1].local_rank, 0);
  Ready(0, 21);  // the spare now
  EXPECT_THAT(Said(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::launch
