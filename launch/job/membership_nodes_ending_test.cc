// Ranks on several nodes: another leader, the end of the job, and hosts that are cut off.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/job/testing/membership_nodes.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using JobPhase = JobState::Phase;
using testing::MembershipNodesTest;

TEST_F(MembershipNodesTest, AnotherLeaderKillsARankThatDoesNotLeave) {
  RunTwo();
  Fail("b", 1, "rank 3 was killed", 1);
  Settle();
  LeadAnew();
  Ready("a", 0, 1);
  Ready("b", 0, 1);
  Settle();
  seconds_ = 11;
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("now", "kill"));
}

TEST_F(MembershipNodesTest, ARankZeroThatFailsBeforeItHearsCostsItsPort) {
  RunTwo();
  Fail("b", 1, "rank 3 was killed", 1);
  Settle();
  Ready("a", 0, 1);
  Ready("a", 1, 1);
  Settle();
  Fail("a", 0, "rank 0 was killed", 2);  // the leader does not know yet, since b is the last to leave
  Ready("b", 0, 1);
  nodes_["a"].steps->OnSlots(*nodes_["a"].slots, nodes_["a"].port);
  Settle();
  Leave({"a", "b"});
  EXPECT_THAT(Told("a")[1], HasSubstr("0 of 2 in "));
}

// It hears of the next generation, whose rank 0 is on another node, and not of the one before.
TEST_F(MembershipNodesTest, ANodeThatMissedThatItHadRankZeroTakesAnotherPort) {
  limits_.max_restarts = 9;
  Lead();
  for (const char* id : {"a", "b"}) Add(id, 1);
  Settle();
  for (const char* id : {"a", "b"}) Ready(id, 0);
  Settle();
  Fail("b", 0, "rank 1 was killed", 1);
  Settle();
  Ready("b", 0);
  Ready("a", 0, 1);
  coordinator_->Update(Posts(), Now());
  ASSERT_EQ(job().ranks.generation, 2);
  Update(&nodes_["b"]);
  Fail("a", 0, "rank 0 was killed", 2);
  coordinator_->Update(Posts(), Now());
  Update(&nodes_["b"]);
  Ready("b", 0, 2);
  Settle();
  EXPECT_THAT(Told("b")[0], HasSubstr("0 of 1 in 3 at b.net"));
  Ready("a", 0);
  Settle();
  Leave({"b"});
  ASSERT_THAT(Told("a")[0], HasSubstr("1 of 2 in 4 "));
  Fail("b", 0, "rank 0 was killed", 3);
  Settle();
  Ready("a", 0, 4);
  Settle();
  EXPECT_THAT(Told("a")[0], HasSubstr("0 of 1 in 5 at a.net"));
}

// The node that ends its ranks then may post another failure, which came later.
TEST_F(MembershipNodesTest, AnotherLeaderNamesTheFirstFailureOfAJobOfOneNodeToo) {
  limits_.max_restarts = 1;
  Lead();
  Add("a");
  Settle();
  for (const int slot : {0, 1}) Ready("a", slot);
  Settle();
  Fail("a", 0, "rank 0 was killed", 1);
  Settle();
  Leave({"a"});
  Fail("a", 1, "rank 0 was killed again", 2);
  coordinator_->Update(Posts(), Now());
  ASSERT_EQ(job().phase, JobPhase::kEnding);
  LeadAnew();
  Failure later;
  later.status = absl::UnknownError("rank 1 exited with code 7");
  later.time_ns = 3;
  nodes_["a"].slots.reset();
  nodes_["a"].steps->OnJob(job());
  nodes_["a"].steps->OnEnd(/*succeeded=*/false, later);
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_EQ(job().result,
            absl::AbortedError("host a: rank 0 was killed again; all other ranks were ended; after 1 restart"));
}

TEST_F(MembershipNodesTest, TheLimitOfRestartsEndsTheJobAndNamesTheFirstFailure) {
  limits_.max_restarts = 1;
  RunTwo();
  Fail("a", 0, "rank 0 was killed", 1);
  Settle();
  Leave({"a", "b"});
  Fail("b", 1, "rank 2 was killed", 3);
  Fail("b", 0, "rank 1 was killed", 2);
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_EQ(job().result, absl::AbortedError("host b: rank 1 was killed; all other ranks were ended; after 1 restart"));
}

TEST_F(MembershipNodesTest, TheJobSucceedsWhenAllRanksHave) {
  RunTwo(/*spares=*/1);
  for (const char* id : {"a", "b"}) {
    for (int slot = 0; slot < 2; ++slot) nodes_[id].slots->OnEnd(slot, {});
  }
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_TRUE(job().result.ok()) << job().result;
}

TEST_F(MembershipNodesTest, OtherProgramsEndTogether) {
  StartTwo();
  EXPECT_FALSE(nodes_["a"].slots->OnEnd(0, {}));
  nodes_["a"].steps->OnFailing();
  Settle();
  EXPECT_EQ(job().start, 2);
  EXPECT_EQ(job().ranks.generation, 0);
}

TEST(Job, RanksThatAreNotWholeAreNotRead) {
  JobState job;
  job.ranks.generation = 1;
  job.ranks.formed = true;
  EXPECT_TRUE(DecodeJob(EncodeJob(job)).ok());
  job.ranks.members = {0};
  EXPECT_EQ(DecodeJob(EncodeJob(job)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MembershipNodesTest, AHostThatAnotherOneDoesNotReachIsLeftOutForAMinute) {
  RunThree(2);
  Ready("b", 0, 1, {"c.net"});
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("now"));
  Ready("c", 0, 1, {"b.net"});
  Settle();
  Leave({"a"});
  EXPECT_THAT(Told("a"), ElementsAre(HasSubstr("0 of 2 in 2 at ")));
  EXPECT_THAT(Told("b"), ElementsAre(HasSubstr("1 of 2 in 2 at ")));
  EXPECT_FALSE(nodes_["c"].slots);  // its processes have ended
  EXPECT_EQ(job().ranks.cuts.line,
            "host c (c.net) is left out, and is tried again in 1m: it and host b (b.net) do not reach each other");
  LeadAnew();
  seconds_ += 59;
  Settle();
  EXPECT_FALSE(nodes_["c"].slots);
  seconds_ += 1;
  Settle();
  ASSERT_TRUE(nodes_["c"].slots);
  Ready("c", 0);
  Settle();
  Leave({"a", "b"});
  EXPECT_THAT(Told("c"), ElementsAre(HasSubstr("2 of 3 in 3 at ")));
  EXPECT_EQ(job().ranks.cuts.line, "");
}

TEST_F(MembershipNodesTest, TheHostOfRank0IsLeftOutIfTheOthersDoNotReachIt) {
  RunThree(2);
  Ready("b", 0, 1, {"a.net"});
  Ready("c", 0, 1, {"a.net"});
  Settle();
  Leave({"a"});
  EXPECT_THAT(Told("b"), ElementsAre(HasSubstr("0 of 2 in 2 at b.net")));
  EXPECT_THAT(Told("c"), ElementsAre(HasSubstr("1 of 2 in 2 at b.net")));
  EXPECT_FALSE(nodes_["a"].slots);
}

TEST_F(MembershipNodesTest, HostsThatDoNotReachEachOtherAreTriedAgainIfAllAreNeeded) {
  RunThree(3);
  Ready("b", 0, 1, {"c.net", "elsewhere.net"});
  Settle();
  Leave({"a", "c"});
  EXPECT_THAT(Told("c"), ElementsAre(HasSubstr("2 of 3 in 2 at ")));
  EXPECT_THAT(job().ranks.cuts.line, HasSubstr("but --nnodes needs 3 nodes"));
}

// The next generation cannot form at once, as another host is lost.
TEST_F(MembershipNodesTest, HostsThatDoNotReachEachOtherAreDecidedOnOnce) {
  RunThree(3);
  Ready("b", 0, 1, {"c.net"});
  Settle();
  nodes_.erase("a");
  Settle();
  Leave({"c"});
  EXPECT_THAT(job().ranks.cuts.line, HasSubstr("hosts b (b.net) and c (c.net) do not all reach each other"));
  EXPECT_THAT(job().ranks.awaited, HasSubstr("2 of at least 3 nodes are there"));
}

TEST_F(MembershipNodesTest, AHostThatWaitsTakesThePlaceOfOneThatIsCutOff) {
  limits_.max_nodes = 2;
  limits_.min_nodes = 2;
  Lead();
  for (const char* id : {"a", "b"}) Add(id, 1);
  Settle();
  for (const char* id : {"a", "b"}) Ready(id, 0);
  Add("c", 1);
  Settle();
  EXPECT_FALSE(nodes_["c"].slots);
  Ready("b", 0, 1, {"a.net"});
  Settle();
  Leave({"a"});
  ASSERT_TRUE(nodes_["c"].slots);
  Ready("c", 0);
  Settle();
  EXPECT_THAT(Told("c"), ElementsAre(HasSubstr("1 of 2 in 2 at ")));
}

TEST_F(MembershipNodesTest, ThePlaceOfAProcessThatCannotWorkWithTheOthersStaysEmpty) {
  limits_.max_restarts = 1;
  RunTwo();
  nodes_["b"].slots->OnUnfit(1);
  Settle();
  Fail("b", 1, "rank 3 keeps other things", 20, /*killed=*/false);
  Settle();
  EXPECT_EQ(nodes_["b"].told[1], "give up");
  Leave({"a", "b"});
  EXPECT_THAT(Told("b"), ElementsAre(HasSubstr("2 of 3 in 2 at "), "give up"));
  EXPECT_EQ(job().restarts, 0);
}

// The leader hears last that the others have done their work.
TEST_F(MembershipNodesTest, AFailureAfterAllWorkCountsAlthoughItsNodeLeavesBeforeTheJobIsComplete) {
  RunTwo();
  for (const int slot : {0, 1}) nodes_["b"].slots->OnDone(slot, /*all=*/false);
  Fail("b", 1, "rank 3 exited with code 3", 1, /*killed=*/false);
  nodes_["b"].steps->OnSignal(15, "received signal 15 (SIGTERM)");
  Settle();
  for (const int slot : {0, 1}) nodes_["a"].slots->OnDone(slot, /*all=*/true);
  Settle();
  for (const int slot : {0, 1}) nodes_["a"].slots->OnEnd(slot, {});
  Settle();
  EXPECT_EQ(job().phase, JobState::Phase::kDone);
  EXPECT_THAT(job().result.message(), HasSubstr("rank 3 exited with code 3"));
}

TEST_F(MembershipNodesTest, AFailureAfterAllWorkCountsAlthoughItsNodeLeaves) {
  RunTwo();
  for (const char* id : {"a", "b"}) {
    for (const int slot : {0, 1}) nodes_[id].slots->OnDone(slot, /*all=*/true);
  }
  Settle();
  Fail("b", 1, "rank 3 exited with code 3", 1, /*killed=*/false);
  nodes_["b"].steps->OnSignal(15, "received signal 15 (SIGTERM)");
  Settle();
  for (const int slot : {0, 1}) nodes_["a"].slots->OnEnd(slot, {});
  Settle();
  EXPECT_EQ(job().phase, JobState::Phase::kDone);
  EXPECT_THAT(job().result.message(), HasSubstr("rank 3 exited with code 3"));
}

// The leader hears of it once the node has ended its ranks, since nobody saw the node.
TEST_F(MembershipNodesTest, AFailureAfterAllWorkCountsAlthoughItsNodeWasOutOfReach) {
  RunTwo();
  for (const char* id : {"a", "b"}) {
    for (const int slot : {0, 1}) nodes_[id].slots->OnDone(slot, /*all=*/true);
  }
  Settle();
  Fail("b", 1, "rank 3 exited with code 3", 1, /*killed=*/false);
  Posts();
  nodes_["b"].steps->OnReach(false);
  Update(&nodes_["b"]);
  EXPECT_FALSE(nodes_["b"].slots);
  nodes_["b"].steps->OnReach(true);
  Settle();
  for (const int slot : {0, 1}) nodes_["a"].slots->OnEnd(slot, {});
  Settle();
  EXPECT_EQ(job().phase, JobState::Phase::kDone);
  EXPECT_THAT(job().result.message(), HasSubstr("rank 3 exited with code 3"));
}

// Rank 3 cannot say it any more. The others know it.
TEST_F(MembershipNodesTest, ARankThatIsKilledBeforeItSaysSoHasDoneItsWorkIfAllHave) {
  limits_.max_restarts = 3;
  RunTwo();
  for (const int slot : {0, 1}) nodes_["a"].slots->OnDone(slot, /*all=*/true);
  nodes_["b"].slots->OnDone(0, /*all=*/true);
  Settle();
  Fail("b", 1, "rank 3 was killed", 1);
  Settle();
  EXPECT_NE(nodes_["b"].told[1], "start");
  EXPECT_TRUE(job().ranks.complete);
}

// Its last processes do not count as those of the next start.
TEST_F(MembershipNodesTest, ANodeThatComesBackStartsWithNewProcesses) {
  RunTwo();
  const int64_t entry = nodes_["b"].steps->state().entry;
  nodes_["b"].steps->OnReach(false);
  Update(&nodes_["b"]);
  nodes_["b"].steps->OnReach(true);
  EXPECT_EQ(nodes_["b"].steps->state().slots[0].phase, SlotState::Phase::kReady) << "as they have ended";
  Settle();
  EXPECT_GT(nodes_["b"].steps->state().entry, entry);
  EXPECT_EQ(nodes_["b"].steps->state().slots[0].phase, SlotState::Phase::kStarting);
  EXPECT_EQ(job().ranks.SlotsIn(RankPlan::State::kStarting).size(), 2u);
}

// Rank 2, which has done its work, keeps the node there.
TEST_F(MembershipNodesTest, NobodyWaitsForAProcessOfANodeThatLeaves) {
  limits_.max_restarts = 3;
  RunTwo();
  nodes_["b"].slots->OnDone(0, /*all=*/false);
  nodes_["a"].steps->OnResize(1, 1);
  Settle();
  Fail("b", 1, "rank 3 was killed", 1);
  for (const int slot : {0, 1}) Fail("a", slot, "was killed", 2);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("start", "start"));
  for (const int slot : {0, 1}) Ready("a", slot);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre(HasSubstr("0 of 2 in 2 at "), HasSubstr("1 of 2 in 2 at ")));
}

}  // namespace
}  // namespace lockstep::launch
