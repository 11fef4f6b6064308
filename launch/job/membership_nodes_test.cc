// Ranks that stay when another one fails, on several nodes.

#include "lockstep/launch/job/testing/membership_nodes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using JobPhase = JobState::Phase;
using testing::MembershipNodesTest;

TEST_F(MembershipNodesTest, TheFirstGenerationHasTheRanksOfAllNodes) {
  Lead();
  Add("a", 1);
  Add("b", 2);
  Settle();
  Ready("a", 0);
  Ready("b", 1);
  Settle();
  EXPECT_THAT(Told("b"), ElementsAre("", ""));
  Ready("b", 0);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("0 of 3 in 1 at a.net:11"));
  EXPECT_THAT(Told("b"), ElementsAre("1 of 3 in 1 at a.net:11", "2 of 3 in 1 at a.net:11"));
}

// The node of the rank that is killed has not heard that ranks of the other one stay.
TEST_F(MembershipNodesTest, ARankThatIsKilledBeforeTheFirstGenerationComesBackAlsoWithAnotherLeader) {
  StartTwo();
  nodes_["a"].slots->OnStays();
  Settle();
  EXPECT_TRUE(nodes_["b"].slots->stays());
  EXPECT_FALSE(nodes_["b"].slots->plan().formed);
  Fail("b", 1, "rank 3 was killed", 20);
  Settle();
  EXPECT_EQ(nodes_["b"].told[1], "start");
  LeadAnew();
  for (const char* id : {"a", "b"}) {
    Ready(id, 0);
    Ready(id, 1);
  }
  Settle();
  EXPECT_EQ(nodes_["b"].told[1], "3 of 4 in 1 at a.net:11");
  EXPECT_EQ(job().start, 1);
  EXPECT_EQ(job().restarts, 1);
}

TEST_F(MembershipNodesTest, ARankThatExitsBeforeTheFirstGenerationEndsAllRanks) {
  StartTwo();
  nodes_["a"].slots->OnStays();
  Settle();
  Failure failure;
  failure.status = absl::AbortedError("rank 3 exited with code 2");
  EXPECT_FALSE(nodes_["b"].slots->OnEnd(1, failure));
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kRunning);
  nodes_["b"].steps->OnFailing();
  Settle();
  EXPECT_EQ(job().start, 2);
  EXPECT_FALSE(job().ranks.formed);
}

TEST_F(MembershipNodesTest, OtherRanksStayAndTheOneThatFailedComesBack) {
  RunTwo();
  Fail("a", 0, "rank 0 was killed", 1);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("start", "now"));
  EXPECT_THAT(Told("b"), ElementsAre("now", "now"));
  EXPECT_EQ(reason_, "host a: rank 0 was killed");
  Leave({"a", "b"});
  EXPECT_THAT(Told("a"), ElementsAre("start", "0 of 3 in 2 at a.net:13"));
  EXPECT_THAT(Told("b"), ElementsAre("1 of 3 in 2 at a.net:13", "2 of 3 in 2 at a.net:13"));
  EXPECT_EQ(reason_, "host a: rank 0 was killed");
  Ready("a", 0);
  Settle();
  EXPECT_THAT(Told("b"), ElementsAre("after step", "after step"));
  EXPECT_EQ(reason_, "process 0 on host a is ready");
  Leave({"a", "b"});
  EXPECT_THAT(Told("a"), ElementsAre("3 of 4 in 3 at a.net:14", "0 of 4 in 3 at a.net:14"));
  EXPECT_EQ(job().start, 1);
  EXPECT_EQ(job().restarts, 1);
}

TEST_F(MembershipNodesTest, TheReasonIsTheFailureThatCameFirst) {
  RunTwo();
  Fail("b", 1, "rank 3 was killed", 200);
  Settle();
  Fail("a", 1, "rank 1 was killed", 100);
  Settle();
  Leave({"a", "b"});
  EXPECT_EQ(reason_, "host a: rank 1 was killed; host b: rank 3 was killed");
}

TEST_F(MembershipNodesTest, ALostNodeIsAFailureOfItsRanks) {
  RunTwo();
  nodes_.erase("b");
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("now", "now"));
  Leave({"a"});
  EXPECT_THAT(Told("a"), ElementsAre("0 of 2 in 2 at a.net:13", "1 of 2 in 2 at a.net:13"));
  EXPECT_EQ(reason_, "host b was lost");
  EXPECT_EQ(job().members.size(), 1);
}

TEST_F(MembershipNodesTest, ANodeThatComesAndOneThatIsDrainedChangeTheWorldAfterAStep) {
  RunTwo();
  Add("c", 1);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("0 of 4 in 1 at a.net:11", "1 of 4 in 1 at a.net:11"));
  Ready("c", 0);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("after step", "after step"));
  Leave({"a", "b"});
  EXPECT_THAT(Told("c"), ElementsAre("4 of 5 in 2 at a.net:13"));
  nodes_["c"].steps->OnDrain("a");
  Settle();
  EXPECT_TRUE(nodes_["a"].slots.has_value());
  EXPECT_THAT(Told("b"), ElementsAre("after step", "after step"));
  Leave({"a", "b", "c"});
  EXPECT_FALSE(nodes_["a"].slots.has_value());
  EXPECT_EQ(nodes_["a"].steps->Result()->code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Told("b"), ElementsAre("0 of 3 in 3 at b.net:12", "1 of 3 in 3 at b.net:12"));
  EXPECT_EQ(reason_, "host a leaves");
}

TEST_F(MembershipNodesTest, ADrainedNodeIsLetGoOnceItsRanksThatHadDoneTheirWorkHaveEnded) {
  RunTwo();
  nodes_["a"].steps->OnDrain("b");
  Settle();
  nodes_["b"].slots->OnDone(0, /*all=*/false);
  Ready("b", 1, 1);
  Leave({"a"});
  EXPECT_THAT(Told("a"), ElementsAre("0 of 2 in 2 at a.net:13", "1 of 2 in 2 at a.net:13"));
  EXPECT_TRUE(nodes_["b"].slots.has_value());
  nodes_["b"].slots->OnEnd(0, {});
  Settle();
  EXPECT_FALSE(nodes_["b"].slots.has_value());
  EXPECT_EQ(job().members.size(), 1);
}

TEST_F(MembershipNodesTest, ANodeThatIsNeededAgainWhileItLeavesComesAgain) {
  RunTwo();
  nodes_["a"].steps->OnResize(1, 1);
  Settle();
  EXPECT_THAT(Told("b"), ElementsAre("after step", "after step"));
  nodes_["a"].steps->OnResize(1, 2);
  Settle();
  Leave({"a", "b"});
  EXPECT_THAT(Told("a"), ElementsAre("0 of 2 in 2 at a.net:13", "1 of 2 in 2 at a.net:13"));
  EXPECT_EQ(job().members[1].agent, "b");
  EXPECT_EQ(job().members[1].entry, 3);
  EXPECT_THAT(Told("b"), ElementsAre("", ""));
}

TEST_F(MembershipNodesTest, ANodeThatTheJobNeedsEndsItWhenItLeaves) {
  limits_.min_nodes = limits_.max_nodes = 2;
  RunTwo();
  nodes_["a"].steps->OnDrain("b");
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_THAT(job().result.message(), HasSubstr("host b left the job: it was drained"));
}

TEST_F(MembershipNodesTest, AnotherNodeTakesThePlaceOfOneThatIsDrainedAlsoIfTheirNumberIsFixed) {
  limits_.min_nodes = limits_.max_nodes = 2;
  RunTwo();
  Add("c", 1);
  Settle();
  nodes_["a"].steps->OnDrain("b");
  Settle();
  EXPECT_THAT(Told("b"), ElementsAre("after step", "after step"));
  Leave({"a", "b"});
  Ready("c", 0);
  Settle();
  EXPECT_THAT(Told("c"), ElementsAre("2 of 3 in 2 at a.net:13"));
}

TEST_F(MembershipNodesTest, TheNodeThatServesIsNamedIfItLeavesAfterAnotherOne) {
  limits_.anchor = "b";
  RunTwo();
  nodes_["b"].steps->OnDrain("a");
  Settle();
  Leave({"a", "b"});
  nodes_.erase("a");
  nodes_["b"].steps->OnSignal(15, "received signal 15 (SIGTERM)");
  nodes_["b"].slots.reset();
  nodes_["b"].steps->OnEnd(/*succeeded=*/false, {});
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_EQ(job().result.message(), "host b left the job: it received signal 15 (SIGTERM)");
}

TEST_F(MembershipNodesTest, RanksWaitForTheLeastNumberOfNodes) {
  limits_.min_nodes = limits_.max_nodes = 2;
  RunTwo();
  nodes_.erase("b");
  Settle();
  Leave({"a"});
  EXPECT_THAT(Told("a"), ElementsAre("now", "now"));
  seconds_ = 599;
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kRunning);
  seconds_ = 600;
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_EQ(job().result.message(), "1 of at least 2 nodes are there after 10m; before, host b was lost");
}

TEST_F(MembershipNodesTest, ANodeThatIsDrainedIsLetGoAlsoIfTheOthersAreTooFewThen) {
  limits_.min_nodes = 2;
  RunTwo();
  nodes_["a"].steps->OnDrain("b");
  Settle();
  Leave({"a", "b"});
  EXPECT_EQ(nodes_["b"].steps->Result()->code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Told("a"), ElementsAre("after step", "after step"));
  EXPECT_EQ(DecodeJob(EncodeJob(job()))->ranks.awaited,
            "1 of at least 2 nodes are there; the ranks wait for others, for 10m at most; before, host b leaves");
  nodes_.erase("b");
  Add("c", 1);
  Settle();
  Ready("c", 0);
  Settle();
  EXPECT_THAT(Told("c"), ElementsAre("2 of 3 in 2 at a.net:13"));
  EXPECT_EQ(job().ranks.awaited, "");
}

// Nothing else is decided then, and no post may follow for long.
TEST_F(MembershipNodesTest, NodesThatAreDrainedAreLetGoAtOnceWhileTheProcessesOfOthersStart) {
  RunTwo();
  Add("c", 1);
  Settle();
  for (const char* id : {"a", "b"}) nodes_["c"].steps->OnDrain(id);
  Settle();
  for (const char* id : {"a", "b"}) {
    for (const int slot : {0, 1}) Ready(id, slot, /*left=*/1);
  }
  EXPECT_TRUE(coordinator_->Update(Posts(), Now()));
  EXPECT_EQ(job().members.size(), 1);
}

TEST_F(MembershipNodesTest, OthersMayComeForAllNodesThatAreDrainedAtOnce) {
  limits_.min_nodes = 2;
  Lead();
  for (const char* id : {"a", "b", "c"}) Add(id, 1);
  Settle();
  for (const char* id : {"a", "b", "c"}) Ready(id, 0);
  Settle();
  EXPECT_THAT(Told("c"), ElementsAre("2 of 3 in 1 at a.net:11"));
  for (const char* id : {"b", "c"}) nodes_["a"].steps->OnDrain(id);
  Settle();
  Leave({"a", "b", "c"});
  EXPECT_EQ(job().phase, JobPhase::kRunning);
  EXPECT_EQ(job().members.size(), 1);
}

TEST_F(MembershipNodesTest, ASpareTakesThePlaceOfARankOfItsNode) {
  RunTwo(/*spares=*/1);
  EXPECT_THAT(Told("b"), ElementsAre("2 of 4 in 1 at a.net:11", "3 of 4 in 1 at a.net:11", ""));
  Fail("b", 0, "rank 2 was killed", 1);
  Settle();
  Leave({"a", "b"});
  EXPECT_THAT(Told("b"), ElementsAre("start", "2 of 4 in 2 at a.net:13", "3 of 4 in 2 at a.net:13"));
}

TEST_F(MembershipNodesTest, AnotherLeaderGoesOnWithoutEndingAnyRank) {
  RunTwo();
  Fail("b", 1, "rank 3 was killed", 1);
  Settle();
  LeadAnew();
  Settle();
  Ready("a", 0, 1);
  Settle();
  LeadAnew();
  Leave({"a", "b"});
  EXPECT_THAT(Told("a"), ElementsAre("0 of 3 in 2 at a.net:13", "1 of 3 in 2 at a.net:13"));
  EXPECT_EQ(reason_, "host b: rank 3 was killed");
  LeadAnew();
  Ready("b", 1);
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("after step", "after step"));
  Leave({"a", "b"});
  EXPECT_THAT(Told("b"), ElementsAre("2 of 4 in 3 at a.net:14", "3 of 4 in 3 at a.net:14"));
  EXPECT_EQ(job().restarts, 1);
}

}  // namespace
}  // namespace lockstep::launch
