#include "lockstep/launch/job/agent_steps.h"

#include <optional>

#include "gtest/gtest.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/testing/agents.h"

namespace lockstep::launch {
namespace {

using AgentPhase = AgentState::Phase;
using JobPhase = JobState::Phase;
using testing::kStart;
using testing::Limits;
using testing::Ready;
using testing::RunRanks;

TEST(AgentSteps, ADrainedAgentLeavesWhenItsRanksHaveEnded) {
  AgentSteps steps("2", Ready("b", 2));
  Coordinator coordinator(Limits(1, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  steps.OnJob(coordinator.job());
  ASSERT_TRUE(steps.TakeStart());
  RunRanks(coordinator, &agents);
  agents["1"].drains = {"2"};
  coordinator.Update(agents, kStart);
  steps.OnJob(coordinator.job());
  EXPECT_TRUE(steps.MustEnd());
  EXPECT_EQ(steps.state().phase, AgentPhase::kRunning);
  steps.OnEnd(false, {});
  EXPECT_EQ(steps.state().phase, AgentPhase::kLeaving);
  EXPECT_EQ(steps.state().leaving, "was drained");
  agents["2"] = steps.state();
  coordinator.Update(agents, kStart);
  steps.OnJob(coordinator.job());
  ASSERT_TRUE(steps.Result());
  EXPECT_EQ(steps.Result()->message(), "the launcher was drained");
}

TEST(AgentSteps, TheEndOfTheJobCountsMoreThanTheLossOfTheRendezvous) {
  AgentSteps steps("2", Ready("b"));
  JobState job;
  job.phase = JobPhase::kDone;
  job.result = absl::UnavailableError("host a was lost");
  steps.OnJob(job);
  steps.OnLost(absl::UnavailableError("the launcher is gone"));
  EXPECT_EQ(steps.Result(), job.result);
}

TEST(AgentSteps, OfSeveralStatesOnlyTheLatestCounts) {
  AgentSteps steps("2", Ready("b", 2));
  Coordinator coordinator(Limits(2, 2), {}, kStart);
  coordinator.Update({{"1", Ready("a", 3)}, {"2", Ready("b", 2)}}, kStart);
  JobState job = coordinator.job();
  job.phase = JobPhase::kEnding;  // it has not seen that the generation ran
  steps.OnJob(job);
  EXPECT_FALSE(steps.TakeStart());
  EXPECT_EQ(steps.state().start, 1);
  EXPECT_TRUE(steps.wants_port());
  job.phase = JobPhase::kRunning;
  job.start = 2;
  for (Member& member : job.members) member.entry += 2;
  steps.OnJob(job);
  const std::optional<NodeStart> start = steps.TakeStart();
  ASSERT_TRUE(start);
  EXPECT_EQ(start->first_rank, 3);
  EXPECT_EQ(start->world_size, 5);
  EXPECT_EQ(start->master_addr, "a.net");
  EXPECT_FALSE(steps.TakeStart());
  EXPECT_FALSE(steps.MustEnd());
  job.phase = JobPhase::kEnding;
  steps.OnJob(job);
  EXPECT_TRUE(steps.MustEnd());
}

TEST(AgentSteps, AnEntryThatEndsBeforeItBeganIsOver) {
  AgentSteps steps("1", Ready("a"));
  Coordinator coordinator(Limits(1, 1), {}, kStart);
  coordinator.Update({{"1", Ready("a")}}, kStart);
  JobState job = coordinator.job();
  steps.OnJob(job);
  ASSERT_TRUE(steps.TakeStart());
  steps.OnEnd(false, {});
  job.members[0].entry = 2;  // the same start goes on, and the node has come again
  job.phase = JobPhase::kEnding;
  steps.OnJob(job);
  EXPECT_EQ(steps.state().entry, 2);
  EXPECT_FALSE(steps.TakeStart());
}

}  // namespace
}  // namespace lockstep::launch
