// Coordinator: nodes that are drained, leave or are not needed.

#include <signal.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/job/testing/agents.h"

namespace lockstep::launch {
namespace {

using AgentPhase = AgentState::Phase;
using JobPhase = JobState::Phase;
using testing::kStart;
using testing::Limits;
using testing::Ready;
using testing::RunRanks;

TEST(Coordinator, ADrainedNodeEndsTheGenerationAndTakesPartInNone) {
  Coordinator coordinator(Limits(1, 3), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  agents["1"].drains = {"3", "of another life"};
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  EXPECT_EQ(coordinator.job().reason, "host c leaves");
  EXPECT_EQ(coordinator.job().drained, std::vector<std::string>{"3"});
  for (auto& [id, agent] : agents) agent.phase = AgentPhase::kReady;  // also the drained one, which has not seen it
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().start, 2);
  EXPECT_EQ(coordinator.job().members.size(), 2);
  EXPECT_EQ(coordinator.job().restarts, 0);
  RunRanks(coordinator, &agents);
  EXPECT_FALSE(coordinator.Update(agents, kStart + absl::Minutes(1))) << "it is no newcomer either";
}

TEST(Coordinator, ResizeEndsRanksOnlyIfThereAreTooMany) {
  Coordinator coordinator(Limits(2, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  agents["1"].resize = {1, 2, 4};
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);
  EXPECT_EQ(coordinator.job().limits.max_nodes, 4);
  agents["2"].resize = {1, 1, 1};  // it had not seen the first one
  EXPECT_FALSE(coordinator.Update(agents, kStart));
  EXPECT_TRUE(coordinator.Update(agents, kStart + absl::Seconds(2))) << "now there is room for the third";
  EXPECT_EQ(coordinator.job().reason, "host c can take part");
  for (auto& [id, agent] : agents) agent.phase = AgentPhase::kReady, agent.start = 1;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().members.size(), 3);
  RunRanks(coordinator, &agents);
  agents["2"].resize = {2, 1, 1};
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  EXPECT_EQ(coordinator.job().reason, "the job now has at most 1 node");
  Coordinator next(Limits(2, 2), coordinator.job(), kStart);
  for (auto& [id, agent] : agents) agent.phase = AgentPhase::kReady;
  next.Update(agents, kStart);
  EXPECT_EQ(next.job().members.size(), 1) << "a new leader knows the limits";
}

TEST(Coordinator, TheJobEndsWhenTheNodeThatServesItLeavesEvenIfItRunsNoRanks) {
  JobLimits limits = Limits(1, 1);
  limits.anchor = "2";
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  agents["2"].phase = AgentPhase::kLeaving;
  agents["2"].leaving = "was drained";
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  EXPECT_EQ(coordinator.job().reason, "host b, which serves the job, leaves");
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kDone);
  EXPECT_EQ(coordinator.job().result.message(), "host b left the job: it was drained");
}

void Leave(AgentState* agent) {
  agent->phase = AgentPhase::kLeaving;
  agent->leaving = "received signal 15 (SIGTERM)";
  agent->signal = 15;
}

// A leader that leaves ends its ranks, decides that it has left, and is gone.

TEST(Coordinator, TheNextLeaderKnowsThatTheOneBeforeHasLeft) {
  Coordinator coordinator(Limits(1, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  Leave(&agents["1"]);
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  Coordinator next(Limits(1, 2), *DecodeJob(EncodeJob(coordinator.job())), kStart);
  agents.erase("1");
  agents["2"].phase = AgentPhase::kReady;
  next.Update(agents, kStart);
  EXPECT_EQ(next.job().phase, JobPhase::kRunning);
  EXPECT_EQ(next.job().start, 2);
  EXPECT_EQ(next.job().restarts, 0);
  EXPECT_EQ(next.job().reason, "host a left the job: it received signal 15 (SIGTERM)");
}

TEST(Coordinator, AnotherNodeTakesThePlaceOfOneThatLeavesAlsoIfTheirNumberIsFixed) {
  Coordinator coordinator(Limits(2, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  Leave(&agents["2"]);
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kForming) << "nobody has seen the end of the generation";
  for (const char* id : {"1", "3"}) agents[id].start = 1;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().start, 2);
  EXPECT_EQ(coordinator.job().members[1].host, "c");
  RunRanks(coordinator, &agents);
  Leave(&agents["3"]);
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().result.message(), "host c left the job: it received signal 15 (SIGTERM)");
}

// It has not seen that others know that it has left.
TEST(Coordinator, ANodeThatLeftBeforeIsNoReason) {
  Coordinator coordinator(Limits(1, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  RunRanks(coordinator, &agents);
  Leave(&agents["2"]);
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  agents["1"].start = 1;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().start, 2);
  RunRanks(coordinator, &agents);
  agents["3"] = Ready("c");
  coordinator.Update(agents, kStart);
  EXPECT_TRUE(coordinator.Update(agents, kStart + absl::Seconds(2)));
  for (const char* id : {"1", "3"}) agents[id].phase = AgentPhase::kReady, agents[id].start = 2;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().start, 3);
  EXPECT_EQ(coordinator.job().reason, "host c can take part");
}

}  // namespace
}  // namespace lockstep::launch
