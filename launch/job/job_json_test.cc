#include "lockstep/launch/job/job_json.h"

#include <string>
#include <vector>

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

TEST(Job, StatesSurviveTheirTexts) {
  AgentState agent = Ready("a\xff\n", 3);
  agent.node_rank = 2;
  agent.phase = AgentPhase::kFailing;
  agent.start = 7;
  agent.failure.status = absl::DataLossError("torn");
  agent.failure.status.SetPayload("url", absl::Cord(std::string("\0\xff", 2)));
  agent.failure.killed = true;
  agent.failure.time_ns = 5000;
  agent.drains = {"other"};
  agent.resize = {3, 1, 2};
  const absl::StatusOr<AgentState> agent_again = DecodeAgent(EncodeAgent(agent, 6000), 100000);
  ASSERT_TRUE(agent_again.ok()) << agent_again.status();
  EXPECT_EQ(agent_again->ranks, 3);
  EXPECT_EQ(agent_again->node_rank, 2);
  EXPECT_EQ(agent_again->phase, AgentPhase::kFailing);
  EXPECT_EQ(agent_again->failure.status, agent.failure.status);
  EXPECT_EQ(agent_again->drains, agent.drains);
  EXPECT_EQ(agent_again->resize.number, 3);
  EXPECT_EQ(agent_again->resize.max_nodes, 2);
  EXPECT_EQ(agent_again->failure.time_ns, 99000) << "the age of the failure was 1000";

  Coordinator coordinator(Limits(2, 2), {}, kStart);
  AgentState asks = Ready("a");
  asks.drains = agent.drains;
  asks.resize = agent.resize;
  coordinator.Update({{"1", asks}, {"2", Ready("b", 2)}, {"other", Ready("d")}}, kStart);
  const absl::StatusOr<JobState> job = DecodeJob(EncodeJob(coordinator.job()));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->start, 1);
  EXPECT_EQ(job->phase, JobPhase::kRunning);
  ASSERT_EQ(job->members.size(), 2);
  EXPECT_EQ(job->members[1].host, "b");
  EXPECT_EQ(job->members[1].ranks, 2);
  EXPECT_EQ(job->drained, std::vector<std::string>{"other"});
  EXPECT_EQ(job->limits.number, 3);
  EXPECT_EQ(job->limits.max_nodes, 2);
}

TEST(Job, OtherTextsAreErrors) {
  for (const char* text : {"", "{}", "[]", "{\"phase\":99}", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeJob(text).status())) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeAgent(text, 0).status())) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch
