#include "lockstep/elastic/internal/rank_steps.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

using Kind = Departure::Kind;

// Rank 1 of three, in the generation of this number, trains.
GenerationFacts Training(int64_t number) {
  GenerationFacts facts;
  facts.number = number;
  facts.rank = 1;
  facts.world_size = 3;
  facts.trains = true;
  return facts;
}

RankSteps AfterCommits(int commits) {
  RankSteps steps(3, 10);
  steps.OnJoin(Training(1), std::nullopt);
  for (int i = 0; i < commits; ++i) steps.OnCommit();
  return steps;
}

const absl::Status kBroken = absl::DataLossError("sample 8 is broken");

TEST(RankSteps, RepeatsTheStepAfterItsOwnError) {
  RankSteps steps = AfterCommits(5);
  EXPECT_TRUE(steps.NeedsCause(Training(1), kBroken));
  const Departure departure = steps.OnEnd(Training(1), kBroken, /*others_failed=*/false);
  EXPECT_EQ(departure.kind, Kind::kJoin);
  EXPECT_EQ(departure.reason, "error of rank 1 in step 5: sample 8 is broken");
  ASSERT_TRUE(departure.failure);
  EXPECT_EQ(departure.failure->step, 5);
  EXPECT_EQ(departure.failure->rank, 1);
  EXPECT_EQ(departure.failure->cause, "sample 8 is broken");
  EXPECT_TRUE(departure.takes_back);
}

TEST(RankSteps, EndsWithItsSecondErrorWithinTheWindow) {
  RankSteps steps = AfterCommits(5);
  EXPECT_EQ(steps.OnEnd(Training(1), kBroken, false).kind, Kind::kJoin);
  for (int i = 0; i < 11; ++i) steps.OnCommit();
  EXPECT_EQ(steps.OnEnd(Training(2), kBroken, false).kind, Kind::kJoin);  // 11 steps later
  for (int i = 0; i < 10; ++i) steps.OnCommit();
  const Departure departure = steps.OnEnd(Training(3), kBroken, false);
  EXPECT_EQ(departure.kind, Kind::kEnd);
  EXPECT_EQ(departure.reason, "error of rank 1 in step 26: sample 8 is broken");
}

TEST(RankSteps, DoesNotEndAlone) {
  RankSteps steps = AfterCommits(5);
  GenerationFacts alone = Training(1);
  alone.world_size = 1;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps.OnEnd(alone, kBroken, false).kind, Kind::kJoin);
}

TEST(RankSteps, DoesNotEndForTheErrorOfAnotherRank) {
  RankSteps steps = AfterCommits(5);
  const absl::Status heard = absl::DataLossError("rank 2 (host a, pid 7): the disk is full");
  GenerationFacts facts = Training(1);
  facts.heard = launch::StepFailure{-1, 2, "the disk is full"};
  EXPECT_FALSE(steps.NeedsCause(facts, heard));
  for (int i = 0; i < 3; ++i) {
    const Departure departure = steps.OnEnd(facts, heard, false);
    EXPECT_EQ(departure.kind, Kind::kJoin);
    EXPECT_EQ(departure.reason, "error of rank 2 in step 5: the disk is full");
  }
  GenerationFacts all = Training(1);
  all.culprit = -1;
  EXPECT_EQ(steps.OnEnd(all, absl::DataLossError("not finite"), false).reason,
            "error of all ranks in step 5: not finite");
}

TEST(RankSteps, RepeatsTheStepWithoutBlameIfAnotherRankHasFailed) {
  RankSteps steps = AfterCommits(5);
  const absl::Status status = absl::UnavailableError("rank 2 died");
  for (int i = 0; i < 3; ++i) {
    const Departure departure = steps.OnEnd(Training(1), status, /*others_failed=*/true);
    EXPECT_EQ(departure.kind, Kind::kJoin);
    EXPECT_EQ(departure.reason, "rank 2 died");
    EXPECT_FALSE(departure.failure);
    EXPECT_TRUE(departure.takes_back);
  }
}

TEST(RankSteps, TakesNothingBackBetweenTwoSteps) {
  RankSteps steps = AfterCommits(5);
  GenerationFacts facts = Training(1);
  facts.regroups = true;
  EXPECT_FALSE(steps.NeedsCause(facts, absl::AbortedError("regroup")));
  const Departure departure = steps.OnEnd(facts, absl::AbortedError("regroup"), false);
  EXPECT_EQ(departure.kind, Kind::kJoin);
  EXPECT_EQ(departure.reason, "");
  EXPECT_FALSE(departure.takes_back);
}

TEST(RankSteps, EndsWithTheStatusIfItIsFinalOrTheWorkIsDone) {
  RankSteps steps = AfterCommits(5);
  EXPECT_EQ(steps.OnEnd(Training(1), absl::OkStatus(), false).kind, Kind::kEnd);
  GenerationFacts facts = Training(1);
  facts.is_final = true;
  EXPECT_FALSE(steps.NeedsCause(facts, kBroken));
  const Departure departure = steps.OnEnd(facts, kBroken, false);
  EXPECT_EQ(departure.kind, Kind::kEnd);
  EXPECT_EQ(departure.reason, "");
}

// Such an error is likely one that all ranks make, so a new process would make it too.
TEST(RankSteps, DoesNotEndBeforeTheFirstStep) {
  RankSteps steps = AfterCommits(0);
  GenerationFacts meets = Training(1);
  meets.trains = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps.OnEnd(meets, kBroken, false).kind, Kind::kJoin);
  steps.OnCommit();
  EXPECT_EQ(steps.OnEnd(meets, kBroken, false).kind, Kind::kEnd);
}

TEST(RankSteps, EndsTheJobForABadArgumentBeforeTheFirstStep) {
  const absl::Status status = absl::InvalidArgumentError("--virtual_ranks=4: expected 8");
  RankSteps steps = AfterCommits(0);
  EXPECT_EQ(steps.OnEnd(Training(1), status, /*others_failed=*/true).kind, Kind::kJoin);
  const Departure departure = steps.OnEnd(Training(1), status, /*others_failed=*/false);
  EXPECT_EQ(departure.kind, Kind::kEndJob);
  EXPECT_EQ(departure.reason, "--virtual_ranks=4: expected 8");
  EXPECT_FALSE(departure.failure);
  steps.OnCommit();
  EXPECT_EQ(steps.OnEnd(Training(1), status, /*others_failed=*/false).kind, Kind::kJoin);
}

TEST(RankSteps, EndsIfItsStateIsDestroyed) {
  RankSteps steps = AfterCommits(0);
  GenerationFacts meets = Training(2);
  meets.trains = false;
  EXPECT_TRUE(steps.HealsInPlace({{0}, {1}, 7}, 1));
  EXPECT_EQ(steps.commits(), kNoState);
  EXPECT_EQ(steps.OnEnd(meets, absl::DataLossError("no rank has a state"), false).kind, Kind::kEnd);
}

TEST(RankSteps, EndsTheJobIfOneCauseComesTooOften) {
  RankSteps steps = AfterCommits(5);
  const std::vector<std::optional<launch::StepFailure>> failures = {
      {{5, 0, "sample 8 is broken"}}, std::nullopt, {{-1, 0, "exited with code 3"}}, {{5, 0, "sample 9 is broken"}}};
  for (const std::optional<launch::StepFailure>& failure : failures) {
    steps.OnJoin(Training(2), failure);
    EXPECT_FALSE(steps.failures().Verdict());
  }
  EXPECT_EQ(steps.failures().failures()[1].step, 5);  // which the launcher does not know
  EXPECT_TRUE(steps.IsRepeated());
  steps.OnJoin(Training(3), launch::StepFailure{5, 0, "sample 9 is broken"});
  EXPECT_FALSE(steps.NeedsCause(Training(3), kBroken));
  const Departure departure = steps.OnEnd(Training(3), kBroken, false);
  EXPECT_EQ(departure.kind, Kind::kEndJob);
  EXPECT_EQ(departure.reason, *steps.failures().Verdict());
  steps.OnCommit();
  EXPECT_FALSE(steps.IsRepeated());
}

TEST(RankSteps, CompletesAStepThatAnotherRankHasApplied) {
  RankSteps steps = AfterCommits(5);
  EXPECT_EQ(steps.OnMetInCommit({{0, 1}, {}, 5}), StepUnderWay::kNone);
  steps.OnGradients();
  EXPECT_FALSE(steps.OnEnd(Training(1), absl::UnavailableError("rank 2 died"), true).takes_back);
  EXPECT_EQ(steps.OnMetInCommit({{0, 1}, {}, 6}), StepUnderWay::kApply);
  steps.OnOwnShards();
  EXPECT_FALSE(steps.HasAllParameters({{0, 1}, {}, 6}, 1));
  steps.OnCommit();
  EXPECT_TRUE(steps.HasAllParameters({{0, 1}, {}, 6}, 1));
  EXPECT_EQ(steps.commits(), 6);
  steps.OnGradients();
  EXPECT_EQ(steps.OnMetInCommit({{0, 1}, {}, 6}), StepUnderWay::kTakeBack);
  EXPECT_EQ(steps.part(), StepPart::kNothing);
}

TEST(RankSteps, CountsTheStartAsAStepOfAShardedOptimizer) {
  RankSteps steps(3, 10);
  steps.Shard();
  EXPECT_EQ(steps.progress(0).commits, 0);
  steps.OnDivided();
  EXPECT_EQ(steps.progress(2).commits, 1);
  EXPECT_EQ(steps.progress(2).node, 2);
  steps.OnHealed({{0}, {1}, 8});
  EXPECT_EQ(steps.commits(), 7);
  steps.BeginAt(500);
  EXPECT_EQ(steps.step(), 507);
}

TEST(RankSteps, KeepsAStateThatOthersMayNeed) {
  RankSteps steps = AfterCommits(5);
  EXPECT_FALSE(steps.HealsInPlace({{0}, {1}, 6}, 1));
  EXPECT_EQ(steps.commits(), 5);
  RankSteps source = AfterCommits(0);
  EXPECT_TRUE(source.HealsInPlace({{1}, {0}, 6}, 1));  // of rank 0
  EXPECT_EQ(source.commits(), 0);
}

TEST(CheckPace, AsksAboutOnceInAnInterval) {
  const absl::Time start = absl::UnixEpoch();
  CheckPace pace(5, start);
  EXPECT_FALSE(pace.IsDue(5));
  EXPECT_TRUE(pace.IsDue(6));
  const absl::Duration interval = absl::Milliseconds(50);
  EXPECT_EQ(pace.Pause(6, interval, start + absl::Milliseconds(10)), 5);
  EXPECT_EQ(pace.Pause(6, interval, start + absl::Seconds(10)), 1);
  EXPECT_EQ(pace.Pause(6, interval, start), 1000);
  pace.OnCheck(6, 5, start + absl::Milliseconds(10));
  EXPECT_FALSE(pace.IsDue(10));
  EXPECT_TRUE(pace.IsDue(11));
  EXPECT_EQ(pace.Pause(11, interval, start + absl::Milliseconds(110)), 2);  // 20 ms a step
}

}  // namespace
}  // namespace lockstep::elastic::internal
