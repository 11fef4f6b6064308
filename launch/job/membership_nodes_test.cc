// Ranks that stay when another one fails, on several nodes: the coordinator's decisions, as the nodes carry them out.

#include "lockstep/tools/launch/agent/internal/job_ranks.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/launch/agent/internal/agent_steps.h"
#include "lockstep/tools/launch/agent/internal/coordinator.h"
#include "lockstep/tools/launch/agent/internal/job.h"
#include "lockstep/tools/launch/internal/node_ranks.h"

namespace lockstep::launch::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using JobPhase = JobState::Phase;
using Kind = NodeSlots::Action::Kind;

class JobRanksTest : public ::testing::Test {
 protected:
  // The launcher of a node, whose processes are only numbers.
  struct Node {
    std::optional<AgentSteps> steps;
    std::optional<NodeSlots> slots;
    std::vector<std::string> told;  // by slot
    int port = 0;
  };

  JobRanksTest() {
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
      for (auto& [id, node] : nodes_) Hear(&node);
    }
  }

  void Hear(Node* node) {
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
    if (node->slots->ranks().formed && node->slots->ranks().master_port == node->port) node->port = ++ports_;
  }

  void Carry(Node* node, const NodeSlots::Action& action) {
    const NodeRanks& ranks = node->slots->ranks();
    std::string& told = node->told[action.slot];
    if (action.kind == Kind::kGeneration) {
      told = absl::StrCat(ranks.slots[action.slot].rank, " of ", ranks.world_size, " in ", ranks.generation, " at ",
                          ranks.master_addr, ":", ranks.master_port);
      if (ranks.slots[action.slot].rank == 0) {
        EXPECT_EQ(ranks.master_port, node->port);
      }
      reason_ = ranks.reason;
    } else if (action.kind == Kind::kOrder) {
      told = ranks.order == RegroupOrder::kNow ? "now" : "after step";
      reason_ = ranks.order_reason;
    } else {
      told = action.kind == Kind::kStart ? "start" : action.kind == Kind::kKill ? "kill" : "give up";
    }
  }

  void Ready(const std::string& id, int slot, int64_t left = 0) {
    Membership::Ask ask;
    ask.leave_timeout = absl::Seconds(10);
    nodes_[id].slots->OnReady(slot, left, ask);
  }

  // The members of the last generation of these nodes have left it.
  void Leave(const std::vector<std::string>& ids) {
    const int64_t generation = job().ranks.memory.generation;
    for (const std::string& id : ids) {
      for (int slot = 0; slot < static_cast<int>(nodes_[id].told.size()); ++slot) {
        const std::string& told = nodes_[id].told[slot];
        if (told == "now" || told == "after step") Ready(id, slot, generation);
      }
    }
    Settle();
  }

  void Fail(const std::string& id, int slot, const std::string& text, int64_t time_ns, bool killed = true) {
    NodeFailure failure;
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

  std::vector<std::string> Told(const std::string& id) const { return nodes_.at(id).told; }

  JobLimits limits_;
  double seconds_ = 0;
  int ports_ = 10;
  std::optional<Coordinator> coordinator_;
  std::map<std::string, Node> nodes_;
  std::string reason_;  // that a process has heard last
};

TEST_F(JobRanksTest, TheFirstGenerationHasTheRanksOfAllNodes) {
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
TEST_F(JobRanksTest, ARankThatIsKilledBeforeTheFirstGenerationComesBackAlsoWithAnotherLeader) {
  StartTwo();
  nodes_["a"].slots->OnStays();
  Settle();
  EXPECT_TRUE(nodes_["b"].slots->ranks().kept);
  EXPECT_FALSE(nodes_["b"].slots->ranks().formed);
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
  EXPECT_EQ(job().generation, 1);
  EXPECT_EQ(job().restarts, 1);
}

TEST_F(JobRanksTest, ARankThatExitsBeforeTheFirstGenerationEndsAllRanks) {
  StartTwo();
  nodes_["a"].slots->OnStays();
  Settle();
  NodeFailure failure;
  failure.status = absl::AbortedError("rank 3 exited with code 2");
  EXPECT_FALSE(nodes_["b"].slots->OnEnd(1, failure));
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kRunning);
  nodes_["b"].steps->OnFailing();
  Settle();
  EXPECT_EQ(job().generation, 2);
  EXPECT_FALSE(job().ranks.memory.formed);
}

TEST_F(JobRanksTest, OtherRanksStayAndTheOneThatFailedComesBack) {
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
  EXPECT_EQ(job().generation, 1);
  EXPECT_EQ(job().restarts, 1);
}

TEST_F(JobRanksTest, TheReasonIsTheFailureThatCameFirst) {
  RunTwo();
  Fail("b", 1, "rank 3 was killed", 200);
  Settle();
  Fail("a", 1, "rank 1 was killed", 100);
  Settle();
  Leave({"a", "b"});
  EXPECT_EQ(reason_, "host a: rank 1 was killed; host b: rank 3 was killed");
}

TEST_F(JobRanksTest, ALostNodeIsAFailureOfItsRanks) {
  RunTwo();
  nodes_.erase("b");
  Settle();
  EXPECT_THAT(Told("a"), ElementsAre("now", "now"));
  Leave({"a"});
  EXPECT_THAT(Told("a"), ElementsAre("0 of 2 in 2 at a.net:13", "1 of 2 in 2 at a.net:13"));
  EXPECT_EQ(reason_, "host b was lost");
  EXPECT_EQ(job().members.size(), 1);
}

TEST_F(JobRanksTest, ANodeThatComesAndOneThatIsDrainedChangeTheWorldAfterAStep) {
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

TEST_F(JobRanksTest, ANodeThatIsNeededAgainWhileItLeavesComesAgain) {
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

TEST_F(JobRanksTest, ANodeThatTheJobNeedsEndsItWhenItLeaves) {
  limits_.min_nodes = limits_.max_nodes = 2;
  RunTwo();
  nodes_["a"].steps->OnDrain("b");
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_THAT(job().result.message(), HasSubstr("host b left the job: it was drained"));
}

TEST_F(JobRanksTest, AnotherNodeTakesThePlaceOfOneThatIsDrainedAlsoIfTheirNumberIsFixed) {
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

TEST_F(JobRanksTest, TheNodeThatServesIsNamedIfItLeavesAfterAnotherOne) {
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

TEST_F(JobRanksTest, RanksWaitForTheLeastNumberOfNodes) {
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

TEST_F(JobRanksTest, ANodeThatIsDrainedIsLetGoAlsoIfTheOthersAreTooFewThen) {
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
TEST_F(JobRanksTest, NodesThatAreDrainedAreLetGoAtOnceWhileTheProcessesOfOthersStart) {
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

TEST_F(JobRanksTest, OthersMayComeForAllNodesThatAreDrainedAtOnce) {
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

TEST_F(JobRanksTest, ASpareTakesThePlaceOfARankOfItsNode) {
  RunTwo(/*spares=*/1);
  EXPECT_THAT(Told("b"), ElementsAre("2 of 4 in 1 at a.net:11", "3 of 4 in 1 at a.net:11", ""));
  Fail("b", 0, "rank 2 was killed", 1);
  Settle();
  Leave({"a", "b"});
  EXPECT_THAT(Told("b"), ElementsAre("start", "2 of 4 in 2 at a.net:13", "3 of 4 in 2 at a.net:13"));
}

TEST_F(JobRanksTest, AnotherLeaderGoesOnWithoutEndingAnyRank) {
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

TEST_F(JobRanksTest, AnotherLeaderKillsARankThatDoesNotLeave) {
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

TEST_F(JobRanksTest, ARankZeroThatFailsBeforeItHearsCostsItsPort) {
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

TEST_F(JobRanksTest, TheLimitOfRestartsEndsTheJobAndNamesTheFirstFailure) {
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

TEST_F(JobRanksTest, TheJobSucceedsWhenAllRanksHave) {
  RunTwo(/*spares=*/1);
  for (const char* id : {"a", "b"}) {
    for (int slot = 0; slot < 2; ++slot) nodes_[id].slots->OnEnd(slot, {});
  }
  Settle();
  EXPECT_EQ(job().phase, JobPhase::kDone);
  EXPECT_TRUE(job().result.ok()) << job().result;
}

TEST_F(JobRanksTest, OtherProgramsEndTogether) {
  StartTwo();
  EXPECT_FALSE(nodes_["a"].slots->OnEnd(0, {}));
  nodes_["a"].steps->OnFailing();
  Settle();
  EXPECT_EQ(job().generation, 2);
  EXPECT_EQ(job().ranks.memory.generation, 0);
}

TEST(Job, RanksThatAreNotWholeAreNotRead) {
  JobState job;
  job.ranks.memory.generation = 1;
  job.ranks.memory.formed = true;
  EXPECT_TRUE(DecodeJob(EncodeJob(job)).ok());
  job.ranks.memory.members = {0};
  EXPECT_EQ(DecodeJob(EncodeJob(job)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::launch::internal
