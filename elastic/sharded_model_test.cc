// Fully sharded trainings whose ranks die end with the bits of a replicated one that nobody has disturbed.

#include <signal.h>
#include <stdlib.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/testing/small_training_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::ReadFile;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Place;
using testing::SmallTrainingTest;

// On shared pages, and over Gloo paged, as between hosts.
class ShardedModelTest : public SmallTrainingTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SmallTrainingTest::SetUp();
    setenv("BACKEND", GetParam(), 1);
  }

  // Returns the digest of a replicated training on one rank.
  std::string ReplicatedDigest(int steps) {
    const std::string digest = DigestOfQuietRun(1, steps);
    EXPECT_THAT(digest, Not(IsEmpty()));
    setenv("SHARDED", "1", 1);
    return digest;
  }

  void ExpectEndsWith(const std::string& digest, pid_t launcher) {
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), digest) << Err();
    for (const char* name : {"digest", "generations", "once"}) remove((folder_ + name).c_str());
  }

  void SetFault(const std::string& place, const std::string& ranks, int step, int microseconds = 0) {
    setenv("FAULT", place.c_str(), 1);
    setenv("FAULT_RANK", ranks.c_str(), 1);
    setenv("FAULT_AT", absl::StrCat(step).c_str(), 1);
    setenv("FAULT_US", absl::StrCat(microseconds).c_str(), 1);
  }
};

TEST_P(ShardedModelTest, HasTheBitsOfAReplicatedTraining) {
  const std::string replicated = ReplicatedDigest(30);
  for (const int ranks : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    ExpectEndsWith(replicated, StartTraining(ranks, 30));
  }
}

TEST_P(ShardedModelTest, SurvivesTheDeathOfAnyRankInAStep) {
  const std::string replicated = ReplicatedDigest(30);
  for (const char* place : {"backward", "half", "stepped"}) {
    for (const char* rank : {"0", "2"}) {
      SCOPED_TRACE(absl::StrCat(place, ", rank ", rank));
      SetFault(place, rank, /*step=*/15);
      ExpectEndsWith(replicated, StartTraining(3, 30));
      EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has 2 ranks"));
    }
  }
}

// Also the first step, before which no rank has a state, and the only other rank.
TEST_P(ShardedModelTest, SurvivesTheDeathOfOneOfTwoRanks) {
  const std::string replicated = ReplicatedDigest(20);
  for (const char* place : {"backward", "half", "stepped"}) {
    for (const int step : {0, 10}) {
      SCOPED_TRACE(absl::StrCat(place, ", step ", step));
      SetFault(place, step == 0 ? "1" : "0", step);
      ExpectEndsWith(replicated, StartTraining(2, 20));
    }
  }
}

// The pages are half written, or the others have them and do not know it.
class SharedPagesTest : public ShardedModelTest {};
TEST_P(SharedPagesTest, SurvivesADeathWhileTheShardsArePublished) {
  const std::string replicated = ReplicatedDigest(30);
  for (const int microseconds : {0, 50, 200}) {
    for (const char* rank : {"0", "2"}) {
      SCOPED_TRACE(absl::StrCat(microseconds, " us, rank ", rank));
      SetFault("publishes", rank, /*step=*/15, microseconds);
      ExpectEndsWith(replicated, StartTraining(3, 30));
    }
  }
}

TEST_P(ShardedModelTest, SurvivesASecondDeathWhileTheModelIsWrappedAgain) {
  const std::string replicated = ReplicatedDigest(120);
  setenv("PAUSE_US", "5000", 1);
  for (const int microseconds : {0, 1000}) {
    SCOPED_TRACE(absl::StrCat(microseconds, " us"));
    SetFault("wraps", "1", /*step=*/0, microseconds);
    const pid_t launcher = StartTraining(4, 120);
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    absl::SleepFor(absl::Milliseconds(200));
    kill(Last()[0].pid, SIGKILL);
    ExpectEndsWith(replicated, launcher);
    EXPECT_THAT(Err(), HasSubstr("; generation 3 has "));
  }
}

// A rank that dies when it gives its state to the one that has come in place of the first.
TEST_P(ShardedModelTest, SurvivesADeathInAHeal) {
  const std::string replicated = ReplicatedDigest(120);
  setenv("PAUSE_US", "5000", 1);
  for (const char* rank : {"0", "1"}) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    SetFault("heals", rank, /*step=*/0);
    const pid_t launcher = StartTraining(4, 120);
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    absl::SleepFor(absl::Milliseconds(200));
    kill(Last()[3].pid, SIGKILL);
    ExpectEndsWith(replicated, launcher);
  }
}

// Ranks come and die, so shards go from rank to rank.
TEST_P(ShardedModelTest, SurvivesManyDeathsOneAtATime) {
  const std::string replicated = ReplicatedDigest(250);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(5, 250);
  std::mt19937 random(5);
  int deaths = 0;
  for (int generation = 1; deaths < 6 && AwaitGeneration(generation);) {
    const std::vector<Place> places = Last();
    if (places.empty()) continue;
    generation = places[0].generation + 1;
    if (places[0].commits > 200) break;
    if (places.size() < 3) continue;  // a second death may come before the shards are on two ranks again
    absl::SleepFor(absl::Milliseconds(200 + random() % 100));
    kill(places[random() % places.size()].pid, SIGKILL);
    ++deaths;
  }
  EXPECT_GE(deaths, 3);
  ExpectEndsWith(replicated, launcher);
}

// All processes start again; here without a checkpoint.
TEST_P(ShardedModelTest, SaysSoIfBothRanksThatHadAShardDie) {
  const std::string replicated = ReplicatedDigest(30);
  for (const int step : {0, 15}) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    SetFault("others", "0", step);
    ExpectEndsWith(replicated, StartTraining(3, 30));
    EXPECT_THAT(Err(), HasSubstr("a part of the model is lost, since both ranks that had a part of it have left: of "));
  }
}

// Parameters in bfloat16, pieces in float. A rank that comes in place of another has float parameters.
TEST_P(ShardedModelTest, SurvivesDeathsInMixedPrecision) {
  setenv("MIXED", "1", 1);
  setenv("SHARDED", "1", 1);
  const std::string quiet = DigestOfQuietRun(1, 120);
  ExpectEndsWith(quiet, StartTraining(4, 120));
  setenv("PAUSE_US", "5000", 1);
  const pid_t launcher = StartTraining(3, 120);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(100));
  kill(Last()[0].pid, SIGKILL);
  ASSERT_TRUE(AwaitGeneration(3)) << Err();  // with a process in its place
  ExpectEndsWith(quiet, launcher);
}

// Rank 0 has the whole model then.
TEST_P(ShardedModelTest, GivesRank0TheWholeModelIfThereAreTooFewRanks) {
  const std::string replicated = ReplicatedDigest(15);
  setenv("MIN_RANKS", "3", 1);
  setenv("WAIT_MS", "300", 1);
  SetFault("late", "1", /*step=*/15);
  EXPECT_EQ(Wait(StartTraining(3, 30)), 75) << Err();
  EXPECT_EQ(ReadFile(folder_ + "resumable"), replicated) << Err();
}

TEST_F(SmallTrainingTest, AShardedModelSaysWhatItNeeds) {
  setenv("SHARDED", "1", 1);
  setenv("CHECK_EVERY", "1", 1);
  EXPECT_EQ(Wait(StartTraining(1, 5)), 1);
  EXPECT_THAT(Err(), HasSubstr("Options::check_every sees no parameters of a ShardedModel, which is kept"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ShardedModelTest, ::testing::Values("auto", "gloo"),
                         [](const auto& param) { return std::string(param.param); });
INSTANTIATE_TEST_SUITE_P(Backends, SharedPagesTest, ::testing::Values("auto"));

}  // namespace
}  // namespace lockstep::elastic
