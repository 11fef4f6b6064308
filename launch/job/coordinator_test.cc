#include "lockstep/launch/job/coordinator.h"

#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/job/testing/agents.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using AgentPhase = AgentState::Phase;
using JobPhase = JobState::Phase;
using testing::Enter;
using testing::kStart;
using testing::Limits;
using testing::Ready;
using testing::RunRanks;

TEST(Coordinator, WaitsForTheLastCallOnlyWithFewerThanTheMost) {
  Coordinator coordinator(Limits(1, 3), {}, kStart);
  Agents agents = {{"1", Ready("a")}};
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kForming);
  EXPECT_EQ(coordinator.next_look(), kStart + absl::Seconds(30));
  coordinator.Update(agents, kStart + absl::Seconds(30));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);

  Coordinator full(Limits(1, 3), {}, kStart);
  agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}, {"4", Ready("d")}};
  full.Update(agents, kStart);
  EXPECT_EQ(full.job().phase, JobPhase::kRunning);
  EXPECT_EQ(full.job().members.size(), 3);
}

// As when its launcher is started again, before the earlier one counts as lost. It could not take part.
TEST(Coordinator, ANodeWhoseRankIsTakenDoesNotEndTheRanks) {
  Coordinator coordinator(Limits(1, 3), {}, kStart);
  Agents agents = {{"1", Ready("a")}};
  agents["1"].node_rank = 0;
  coordinator.Update(agents, kStart);
  coordinator.Update(agents, kStart + absl::Seconds(30));
  ASSERT_EQ(coordinator.job().phase, JobPhase::kRunning);
  agents["1"].start = 1;
  agents["1"].phase = AgentPhase::kRunning;
  agents["2"] = Ready("b");
  agents["2"].node_rank = 0;
  coordinator.Update(agents, kStart + absl::Seconds(31));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);
  coordinator.Update(agents, kStart + absl::Seconds(60));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);
  agents["2"].node_rank = 1;
  coordinator.Update(agents, kStart + absl::Seconds(61));
  coordinator.Update(agents, kStart + absl::Seconds(62));
  EXPECT_EQ(coordinator.job().reason, "host b can take part");
}

TEST(Coordinator, NamesWhoIsThereAndWhoIsMissing) {
  Coordinator coordinator(Limits(3, 3), {}, kStart);
  const Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  EXPECT_TRUE(coordinator.Update(agents, kStart + absl::Minutes(10)));
  EXPECT_EQ(coordinator.job().result, absl::DeadlineExceededError("2 of 3 nodes came within 10m: hosts a and b"));
}

TEST(Coordinator, TheEarliestFailureThatIsNoConsequenceIsTheCause) {
  Coordinator coordinator(Limits(3, 3), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  coordinator.Update(agents, kStart);
  for (auto& [id, agent] : agents) {
    Enter(coordinator, id, &agents);
    agent.failure.status = absl::UnknownError(absl::StrCat("rank of ", id));
    agent.failure.time_ns = 100 - agent.host[0];  // a is the last
  }
  agents["3"].failure.consequence = true;
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kDone);
  EXPECT_EQ(coordinator.job().result,
            absl::UnknownError("host b: rank of 2; the ranks of the other 2 hosts were ended"));
}

TEST(Coordinator, TheCauseIsNamedOnceEachMemberHasSeenTheEnd) {
  Coordinator coordinator(Limits(2, 2), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  Enter(coordinator, "2", &agents);
  agents["2"].failure.status = absl::UnknownError("rank of 2");
  agents["2"].failure.consequence = true;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding) << "what the first one says is from before the generation";
  Enter(coordinator, "1", &agents);
  agents["1"].failure.status = absl::UnknownError("rank of 1");
  coordinator.Update(agents, kStart);
  EXPECT_THAT(coordinator.job().result.message(), HasSubstr("host a: rank of 1"));
}

// Its ranks of that entry may have started since it spoke.
TEST(Coordinator, ANodeThatHasEnteredAgainIsAwaitedUntilItSpeaksOfThat) {
  Coordinator first(Limits(1, 1), {}, kStart);
  Agents agents = {{"1", Ready("a")}};
  first.Update(agents, kStart);
  RunRanks(first, &agents);
  agents["1"].phase = AgentPhase::kReady;
  JobState job = first.job();
  job.phase = JobPhase::kEnding;
  job.members[0].entry = job.entries = 2;
  Coordinator second(Limits(1, 1), job, kStart);
  second.Update(agents, kStart);
  EXPECT_EQ(second.job().phase, JobPhase::kEnding);
  agents["1"].entry = 2;
  second.Update(agents, kStart);
  EXPECT_EQ(second.job().start, 2);
}

TEST(Coordinator, NamesAllNodesThatWereOutOfReach) {
  Coordinator coordinator(Limits(3, 3), {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  coordinator.Update(agents, kStart);
  for (const char* id : {"1", "3"}) agents[id].start = 1;
  agents["2"].start = 1;
  agents["2"].phase = AgentPhase::kRunning;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().reason, "hosts a and c were out of reach");
}

TEST(Coordinator, KnowsWhoWasLostUntilTheNextGeneration) {
  JobLimits limits = Limits(1, 2);
  limits.max_restarts = 1;
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  agents.erase("2");
  Enter(coordinator, "1", &agents);
  agents["1"].phase = AgentPhase::kRunning;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  agents["3"] = Ready("c");
  agents["3"].phase = AgentPhase::kRunning;  // of another generation, so none can form
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  ASSERT_EQ(coordinator.job().phase, JobPhase::kForming);
  EXPECT_THAT(coordinator.job().lost, ElementsAre("2"));
  EXPECT_THAT(DecodeJob(EncodeJob(coordinator.job()))->lost, ElementsAre("2"));
  agents.erase("3");
  coordinator.Update(agents, kStart);
  ASSERT_EQ(coordinator.job().start, 2);
  EXPECT_THAT(coordinator.job().lost, ElementsAre());
}

TEST(Coordinator, ANewLeaderCountsRestartsFromWhenItSawThem) {
  JobLimits limits = Limits(2, 2);
  limits.max_restarts = 2;
  limits.restart_window = absl::Minutes(10);
  JobState last;
  last.start = last.restarts = 2;
  last.members.resize(2);
  last.members[0].agent = "1";
  last.members[1].agent = "2";
  last.phase = JobPhase::kRunning;
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  for (auto& [id, agent] : agents) agent.start = 2;
  agents["1"].failure.status = absl::UnknownError("a rank failed");
  const absl::Time now = kStart + absl::Hours(1);
  const auto phase_with = [&](const std::vector<absl::Time>& restarts) {
    Coordinator next(limits, last, now, restarts);
    next.Update(agents, now);
    return next.job().phase;
  };
  EXPECT_EQ(phase_with({kStart, now - absl::Minutes(1)}), JobPhase::kRunning);
  EXPECT_EQ(phase_with({now - absl::Minutes(9), now - absl::Minutes(1)}), JobPhase::kDone);
  EXPECT_EQ(phase_with({}), JobPhase::kDone) << "as if they were made now";
}

TEST(Coordinator, NamesOneLauncherWithOtherFlagsAtATime) {
  JobLimits limits = Limits(3, 3);
  limits.host = "a";
  limits.flags = {"--nnodes=3", "--max-restarts=0"};
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"3", Ready("c")}};
  agents["1"].flags = agents["3"].flags = limits.flags;
  agents["3"].flags[1] = "--max-restarts=2";
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  const std::string first =
      "host c was started with --max-restarts=2, but host a, which leads the job, with --max-restarts=0, which counts";
  EXPECT_EQ(coordinator.job().flags, first);
  agents["2"] = Ready("b");
  agents["2"].flags = {"--nnodes=2", "--max-restarts=0"};
  agents["2"].phase = AgentPhase::kRunning;
  EXPECT_FALSE(coordinator.Update(agents, kStart)) << "a text for each node that comes would be many decisions";
  agents.erase("3");
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().flags,
            "host b was started with --nnodes=2, but host a, which leads the job, with --nnodes=3, which counts");
  EXPECT_EQ(DecodeJob(EncodeJob(coordinator.job()))->flags, coordinator.job().flags);
  Coordinator next(limits, coordinator.job(), kStart);
  EXPECT_FALSE(next.Update(agents, kStart)) << "the same line";
  EXPECT_EQ(DecodeAgent(EncodeAgent(agents["2"], 0), 0)->flags, agents["2"].flags);
  agents.erase("2");
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  EXPECT_EQ(coordinator.job().flags, "");
}

// Node ranks, limits and drains of the stranger do not count either.
TEST(Coordinator, RefusesALauncherOfAnotherJobAndGoesOn) {
  JobLimits limits = Limits(2, 3);
  limits.program.words = {"/x/train", "--lr", "1"};
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}, {"3", Ready("c")}};
  for (auto& [id, agent] : agents) agent.program = limits.program;
  agents["3"].program.words[2] = "2";
  agents["3"].node_rank = 7;
  agents["3"].drains = {"1"};
  agents["3"].resize = {1, 1, 1};
  EXPECT_TRUE(coordinator.Update(agents, kStart));
  const std::string why =
      "host c runs /x/train --lr 2, the job runs /x/train --lr 1: is it another job? give it another --rdzv-id; "
      "--rdzv-conf=same_program=false allows it";
  ASSERT_NE(FindStranger(coordinator.job(), "3"), nullptr);
  EXPECT_EQ(FindStranger(coordinator.job(), "3")->why, why);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kForming);
  coordinator.Update(agents, kStart + absl::Seconds(30));
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);
  EXPECT_EQ(coordinator.job().members.size(), 2);
  EXPECT_TRUE(coordinator.job().drained.empty());

  // It fails alone.
  const absl::StatusOr<JobState> decided = DecodeJob(EncodeJob(coordinator.job()));
  ASSERT_TRUE(decided.ok()) << decided.status();
  AgentSteps stranger("3", agents["3"]), member("2", agents["2"]);
  stranger.OnJob(*decided);
  member.OnJob(*decided);
  EXPECT_EQ(stranger.Result(), absl::InvalidArgumentError(why));
  EXPECT_EQ(stranger.TakeStart(), std::nullopt);
  EXPECT_EQ(member.Result(), std::nullopt);
  EXPECT_NE(member.TakeStart(), std::nullopt);

  // It leaves. Who has not looked at the job meanwhile can still say so.
  agents.erase("3");
  EXPECT_FALSE(coordinator.Update(agents, kStart + absl::Seconds(31)));
  EXPECT_NE(FindStranger(coordinator.job(), "3"), nullptr);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);

  agents["4"] = agents["2"];
  agents["4"].program.words[2] = "3";
  EXPECT_TRUE(coordinator.Update(agents, kStart + absl::Seconds(32)));
  EXPECT_EQ(FindStranger(coordinator.job(), "3"), nullptr);
  EXPECT_NE(FindStranger(coordinator.job(), "4"), nullptr);
}

TEST(Coordinator, RefusesItsOwnLauncherIfThatLeadsAnotherJob) {
  JobLimits limits = Limits(1, 2);
  limits.program.words = {"train", "1"};
  Agents agents = {{"1", Ready("a")}};
  agents["1"].program = limits.program;
  Coordinator first(limits, {}, kStart);
  first.Update(agents, kStart);
  first.Update(agents, kStart + absl::Minutes(1));
  ASSERT_EQ(first.job().phase, JobPhase::kRunning);
  limits.program.words = {"train", "2"};
  agents["2"] = Ready("b");
  agents["2"].program = limits.program;
  Coordinator second(limits, first.job(), kStart + absl::Minutes(2));
  second.Update(agents, kStart + absl::Minutes(2));
  second.Update(agents, kStart + absl::Minutes(3));
  EXPECT_EQ(FindStranger(second.job(), "1"), nullptr);
  EXPECT_NE(FindStranger(second.job(), "2"), nullptr);
  EXPECT_EQ(second.job().members.size(), 1);
  EXPECT_EQ(second.job().phase, JobPhase::kRunning);
}

TEST(Coordinator, TakesOtherProgramsIfThatIsAllowedOrNothingIsKnown) {
  for (const bool is_known : {true, false}) {
    JobLimits limits = Limits(2, 2);
    limits.same_program = !is_known;
    limits.program.words = {"train", "1"};
    Coordinator coordinator(limits, {}, kStart);
    Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
    agents["1"].program = limits.program;
    if (is_known) agents["2"].program.words = {"train", "2"};
    coordinator.Update(agents, kStart);
    EXPECT_EQ(coordinator.job().phase, JobPhase::kRunning);
  }
}

TEST(Coordinator, ANodeThatLeavesWhileTheJobFormsAgainIsWhyTheJobEnds) {
  JobLimits limits = Limits(2, 2);
  limits.max_restarts = 1;
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  agents.erase("2");
  Enter(coordinator, "1", &agents);
  coordinator.Update(agents, kStart);
  ASSERT_EQ(coordinator.job().phase, JobPhase::kForming);
  ASSERT_EQ(coordinator.job().reason, "host b was lost; restart 1 of 1");
  agents["1"].phase = AgentPhase::kLeaving;
  agents["1"].leaving = "received signal 15 (SIGTERM)";
  agents["1"].signal = SIGTERM;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kDone);
  EXPECT_TRUE(absl::IsCancelled(coordinator.job().result));
  EXPECT_EQ(coordinator.job().result.message(), "host a left the job: it received signal 15 (SIGTERM)");
}

TEST(Coordinator, TheJobEndsWithTheNodeThatServesAlsoIfThatRunsNoRanks) {
  JobLimits limits = Limits(1, 1);
  limits.anchor = "2";
  Coordinator coordinator(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  coordinator.Update(agents, kStart);
  ASSERT_EQ(coordinator.job().members.size(), 1);
  ASSERT_EQ(coordinator.job().members[0].agent, "1");
  RunRanks(coordinator, &agents);
  agents["2"].phase = AgentPhase::kLeaving;
  agents["2"].leaving = "received signal 15 (SIGTERM)";
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kEnding);
  agents["1"].phase = AgentPhase::kReady;
  coordinator.Update(agents, kStart);
  EXPECT_EQ(coordinator.job().phase, JobPhase::kDone);
  EXPECT_TRUE(absl::IsCancelled(coordinator.job().result)) << coordinator.job().result;
}

TEST(Coordinator, ANewLeaderGoesOnFromTheLastDecision) {
  JobLimits limits = Limits(2, 2);
  limits.max_restarts = 1;
  Coordinator first(limits, {}, kStart);
  Agents agents = {{"1", Ready("a")}, {"2", Ready("b")}};
  first.Update(agents, kStart);
  RunRanks(first, &agents);
  agents["2"].phase = AgentPhase::kReady;
  agents["2"].failure.status = absl::UnknownError("failed");
  agents["1"].phase = AgentPhase::kReady;
  first.Update(agents, kStart);
  EXPECT_EQ(first.job().start, 2);
  EXPECT_EQ(first.job().restarts, 1);

  Coordinator second(limits, first.job(), kStart + absl::Seconds(9));
  for (auto& [id, agent] : agents) Enter(second, id, &agents);
  second.Update(agents, kStart + absl::Seconds(9));
  EXPECT_EQ(second.job().phase, JobPhase::kDone);
  EXPECT_THAT(second.job().result.message(), HasSubstr("after 1 restart"));
}

// How a new leader decides about a failure at `at`, whose predecessor has started the ranks again once.
JobPhase PhaseAfterAnotherFailure(const JobLimits& limits, absl::Time at) {
  Agents agents = {{"1", Ready("a")}};
  const auto fail = [&agents](Coordinator* coordinator, absl::Time now) {
    RunRanks(*coordinator, &agents);
    coordinator->Update(agents, now);
    agents["1"].phase = AgentPhase::kReady;
    agents["1"].failure.status = absl::UnknownError("failed");
    coordinator->Update(agents, now);
    agents["1"].failure = {};
  };
  Coordinator first(limits, {}, kStart);
  first.Update(agents, kStart);
  fail(&first, kStart);
  EXPECT_EQ(first.job().restarts, 1);
  Coordinator second(limits, first.job(), kStart + absl::Seconds(9));
  second.Update(agents, kStart + absl::Seconds(9));
  fail(&second, at);
  return second.job().phase;
}

TEST(Coordinator, ARestartOfTheLeaderBeforeCountsUntilTheWindowSinceTheChangeIsOver) {
  JobLimits limits = Limits(1, 1);
  limits.max_restarts = 1;
  limits.restart_window = absl::Minutes(1);
  EXPECT_EQ(PhaseAfterAnotherFailure(limits, kStart + absl::Seconds(68)), JobPhase::kDone);
  EXPECT_NE(PhaseAfterAnotherFailure(limits, kStart + absl::Seconds(69)), JobPhase::kDone);
  limits.restart_window = absl::InfiniteDuration();
  EXPECT_EQ(PhaseAfterAnotherFailure(limits, kStart + absl::Seconds(69)), JobPhase::kDone);
}

}  // namespace
}  // namespace lockstep::launch
