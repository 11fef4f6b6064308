// Ranks that stay when another one fails, on several nodes: the coordinator's decisions, as the nodes carry them out.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/node_slots.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using JobPhase = JobState::Phase;
using Kind = NodeSlots::Action::Kind;

class MembershipNodesTest : public ::testing::Test {
 protected:
  // The launcher of a node, whose processes are only numbers.
  struct Node {
    std::optional<AgentSteps> steps;
    std::optional<NodeSlots> slots;
    std::vector<std::string> told;  // by slot
    int port = 0;
  };

  MembershipNodesTest() {
    limits_.min_nodes = 1;
    limits_.max_nodes = 3;
    limits_.last_call = absl::ZeroDuration();
  }

  void Lead() { coordinator_.emplace(limits_, JobState(), Now()); }
  // Another agent leads, which knows only what all know.
  void LeadAnew() { coordinator_.emplace(limits_, *DecodeJob(EncodeJob(coordinator_->job())), Now()); }

  absl::Time Now() const { return absl::UnixEpoch() + absl::Seconds(seconds_); }
  const JobState& job() const { return coordinator_->job(); }

  void Add(const std::string& id, int ranks = 2, int spares = 0) {
    AgentState state;
    state.host = id;
    state.address = absl::StrCat(id, ".net");
    state.ranks = ranks;
    state.spares = spares;
    Node& node = nodes_[id];
    node.steps.emplace(id, state);
    node.steps->OnPort(1);
  }

  Agents Posts() {
    Agents agents;
    for (auto& [id, node] : nodes_) {
      if (node.slots) node.steps->OnSlots(*node.slots, node.port);
      agents[id] = node.steps->state();
    }
    return agents;
  }

  // Posts and decisions arrive until nothing changes.
  void Settle() {
    for (int i = 0; i < 20; ++i) {
      coordinator_->Update(Posts(), Now());
      for (auto& [id, node] : nodes_) Update(&node);
    }
  }

  void Update(Node* node) {
    node->steps->OnJob(job());
    if (node->steps->TakeStart()) {
      const int slots = node->steps->state().ranks + node->steps->state().spares;
      node->slots.emplace(slots);
      node->told.assign(slots, "");
      node->port = ++ports_;
    }
    if (!node->slots) return;
    if (node->steps->MustEnd()) {
      node->slots.reset();
      node->steps->OnEnd(/*succeeded=*/false, {});
      return;
    }
    node->slots->OnRanks(node->steps->Ranks());
    for (const NodeSlots::Action& action : node->slots->Take()) Carry(node, action);
    if (node->slots->has_rank_0() && node->slots->plan().master_port == node->port) node->port = ++ports_;
  }

  void Carry(Node* node, const NodeSlots::Action& action) {
    std::string& told = node->told[action.slot];
    if (action.kind == Kind::kGeneration) {
      const RankGeneration ranks = node->slots->GenerationOf(action.slot);
      told = absl::StrCat(ranks.rank, " of ", ranks.world_size, " in ", ranks.number, " at ", ranks.master_addr, ":",
                          ranks.master_port);
      if (ranks.rank == 0) {
        EXPECT_EQ(ranks.master_port, node->port);
      }
      reason_ = ranks.reason;
    } else if (action.kind == Kind::kOrder) {
      told = node->slots->plan().order == RegroupOrder::kNow ? "now" : "after step";
      reason_ = node->slots->plan().order_reason;
    } else {
      told = action.kind == Kind::kStart ? "start" : action.kind == Kind::kKill ? "kill" : "give up";
    }
  }

  void Ready(const std::string& id, int slot, int64_t left = 0, const std::vector<std::string>& silent_hosts = {}) {
    JoinOptions ask;
    ask.silent_hosts = silent_hosts;
    ask.leave_timeout = absl::Seconds(10);
    nodes_[id].slots->OnReady(slot, left, ask);
  }

  // The members of the last generation of these nodes have left it.
  void Leave(const std::vector<std::string>& ids) {
    const int64_t generation = job().ranks.generation;
    for (const std::string& id : ids) {
      for (int slot = 0; slot < static_cast<int>(nodes_[id].told.size()); ++slot) {
        const std::string& told = nodes_[id].told[slot];
        if (told == "now" || told == "after step") Ready(id, slot, generation);
      }
    }
    Settle();
  }

  void Fail(const std::string& id, int slot, const std::string& text, int64_t time_ns, bool killed = true) {
    Failure failure;
    failure.status = absl::AbortedError(text);
    failure.killed = killed;
    failure.time_ns = time_ns;
    nodes_[id].slots->OnEnd(slot, std::move(failure));
  }

  // Nodes a and b start two processes each, and `spares`.
  void StartTwo(int spares = 0) {
    Lead();
    for (const char* id : {"a", "b"}) Add(id, 2, spares);
    Settle();
  }

  // Nodes a and b run, with two ranks each.
  void RunTwo(int spares = 0) {
    StartTwo(spares);
    for (const char* id : {"a", "b"}) {
      for (int slot = 0; slot < 2 + spares; ++slot) Ready(id, slot);
    }
    Settle();
  }

  // Nodes a, b and c run, with one rank each; `least` of them are enough.
  void RunThree(int least) {
    limits_.min_nodes = least;
    Lead();
    for (const char* id : {"a", "b", "c"}) Add(id, 1);
    Settle();
    for (const char* id : {"a", "b", "c"}) Ready(id, 0);
    Settle();
    EXPECT_THAT(Told("a"), ElementsAre("0 of 3 in 1 at a.net:11"));
  }

  std::vector<std::string> Told(const std::string& id) const { return nodes_.at(id).told; }

  JobLimits limits_;
  double seconds_ = 0;
  int ports_ = 10;
  std::optional<Coordinator> coordinator_;
  std::map<std::string, Node> nodes_;
  std::string reason_;  // that a process has heard last
};

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

}  // namespace
}  // namespace lockstep::launch
