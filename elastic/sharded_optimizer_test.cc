// Trainings with a ShardedOptimizer whose ranks die end with the bits of a plain one that nobody has disturbed.

#include <signal.h>
#include <stdlib.h>

#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/testing/small_training_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::Eventually;
using launch::testing::Gone;
using launch::testing::ReadFile;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Place;

class ShardedOptimizerTest : public testing::SmallTrainingTest {
 protected:
  // Returns the digest of a plain optimizer on one rank.
  std::string PlainDigest(int steps) {
    const std::string digest = DigestOfQuietRun(1, steps);
    EXPECT_THAT(digest, Not(::testing::IsEmpty()));
    setenv("SHARDED", "1", 1);
    return digest;
  }

  void ExpectEndsWith(const std::string& digest, pid_t launcher) {
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), digest) << Err();
    for (const char* name : {"digest", "generations"}) remove((folder_ + name).c_str());
  }

  pid_t PidOf(int rank) const {
    for (const Place& place : Last()) {
      if (place.rank == rank) return place.pid;
    }
    return 0;
  }
};

bool IsStopped(pid_t pid) { return absl::StrContains(ReadFile(absl::StrCat("/proc/", pid, "/stat")), ") T "); }

TEST_F(ShardedOptimizerTest, HasTheBitsOfThePlainOptimizer) {
  const std::string plain = PlainDigest(50);
  for (const int ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    ExpectEndsWith(plain, StartTraining(ranks, 50));
  }
}

// The others have stepped their shards, or learn from those that have that they must.
TEST_F(ShardedOptimizerTest, SurvivesTheDeathOfAnyRankInAStep) {
  const std::string plain = PlainDigest(60);
  for (const char* backend : {"shm", "gloo"}) {
    for (const char* rank : {"0", "1", "2"}) {
      SCOPED_TRACE(absl::StrCat(backend, ", rank ", rank));
      setenv("BACKEND", backend, 1);
      setenv("FAULT", "dies", 1);
      setenv("FAULT_AT", "30", 1);
      setenv("FAULT_RANK", rank, 1);
      ExpectEndsWith(plain, StartTraining(3, 60));
      EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has 2 ranks"));
    }
  }
}

// Rank 2 has all gradients, and does not know whether the others have stepped.
TEST_F(ShardedOptimizerTest, SurvivesADeathWhileARankWaitsForTheOthers) {
  const std::string plain = PlainDigest(60);
  for (const char* backend : {"shm", "gloo"}) {
    for (const int victim : {0, 1}) {
      SCOPED_TRACE(absl::StrCat(backend, ", rank ", victim));
      setenv("BACKEND", backend, 1);
      setenv("FAULT", "stops", 1);
      setenv("FAULT_AT", "30", 1);
      const pid_t launcher = StartTraining(3, 60);
      ASSERT_TRUE(AwaitGeneration(1)) << Err();
      const pid_t stopped = PidOf(2), dies = PidOf(victim);
      ASSERT_TRUE(Eventually([&] { return IsStopped(stopped); }, absl::Seconds(60))) << Err();
      absl::SleepFor(absl::Milliseconds(400));
      kill(dies, SIGKILL);
      EXPECT_TRUE(Eventually([&] { return Gone(dies); }));
      absl::SleepFor(absl::Milliseconds(200));
      kill(stopped, SIGCONT);
      ExpectEndsWith(plain, launcher);
    }
  }
}

TEST_F(ShardedOptimizerTest, SurvivesManyDeathsOneAtATime) {
  const std::string plain = PlainDigest(400);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(4, 400);
  std::mt19937 random(5);
  int deaths = 0;
  for (int generation = 1; deaths < 10 && AwaitGeneration(generation);) {
    const std::vector<Place> places = Last();
    if (places.empty()) continue;
    generation = places[0].generation + 1;
    if (places[0].commits > 330) break;
    if (places.size() < 3) continue;  // a second death may come before the state is on two ranks again
    absl::SleepFor(absl::Milliseconds(200 + random() % 100));
    kill(places[random() % places.size()].pid, SIGKILL);
    ++deaths;
  }
  EXPECT_GE(deaths, 4);
  ExpectEndsWith(plain, launcher);
}

// There are more ranks than states, so some ranks have none.
TEST_F(ShardedOptimizerTest, HasTheBitsOfThePlainOptimizerOnEightRanks) {
  constexpr int kRanks = 8;
  setenv("VIRTUAL_RANKS", absl::StrCat(kRanks).c_str(), 1);
  const std::string plain = PlainDigest(40);
  setenv("FAULT", "dies", 1);
  setenv("FAULT_AT", "20", 1);
  for (const int rank : {0, kRanks - 1}) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    setenv("FAULT_RANK", absl::StrCat(rank).c_str(), 1);
    ExpectEndsWith(plain, StartTraining(kRanks, 40));
    EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has 7 ranks"));
  }
}

// The state of some parameters was on these two ranks only. All processes start again; here without a checkpoint.
TEST_F(ShardedOptimizerTest, SaysSoIfBothRanksThatHadAStateDie) {
  const std::string plain = PlainDigest(60);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(3, 60);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(100));
  kill(PidOf(1), SIGSTOP);
  kill(PidOf(2), SIGKILL);
  kill(PidOf(1), SIGKILL);
  ExpectEndsWith(plain, launcher);
  EXPECT_THAT(Err(), HasSubstr("the optimizer's state is lost, since both ranks that had a part of it have left"));
}

// The rank that is left has stepped its own shards, and cannot get the other parameters of that step: not by trying
// again.
TEST_F(ShardedOptimizerTest, SaysSoIfTheyDieInAStep) {
  const std::string plain = PlainDigest(60);
  setenv("FAULT", "others_die", 1);
  for (const char* step : {"0", "30"}) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    setenv("FAULT_AT", step, 1);
    ExpectEndsWith(plain, StartTraining(3, 60));
    EXPECT_THAT(Err(), HasSubstr("the optimizer's state is lost, since both ranks that had a part of it have left"));
  }
}

// So rank 0 can save it.
TEST_F(ShardedOptimizerTest, GivesRank0TheWholeStateIfThereAreTooFewRanks) {
  setenv("SHARDED", "1", 1);
  setenv("MIN_RANKS", "3", 1);
  setenv("WAIT_MS", "300", 1);
  setenv("FAULT", "late", 1);
  setenv("PAUSE_US", "5000", 1);
  const pid_t launcher = StartTraining(3, 1000);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(300));
  kill(PidOf(1), SIGKILL);
  EXPECT_EQ(Wait(launcher), 75) << Err();
  EXPECT_THAT(ReadFile(folder_ + "resumable"), HasSubstr("states of 6 parameters"));
}

}  // namespace
}  // namespace lockstep::elastic
