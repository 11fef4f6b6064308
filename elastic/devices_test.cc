// Ranks that share one GPU, with --config=cuda.

#include <signal.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/testing/small_training_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::ReadFile;

class WorldOnGpu : public testing::SmallTrainingTest {
 protected:
  void SetUp() override { setenv("DEVICE", "cuda", 1); }
};

TEST_F(WorldOnGpu, EndsWithTheSameBitsOnOneRankAndTwo) {
  const std::string one = DigestOfQuietRun(1, 100);
  EXPECT_THAT(one, ::testing::Not(::testing::IsEmpty()));
  EXPECT_EQ(DigestOfQuietRun(2, 100), one);
}

TEST_F(WorldOnGpu, EndsWithTheSameBitsAfterAnyRankHasDied) {
  constexpr int kRanks = 2, kSteps = 400, kDeathsOfEach = 3;
  const std::string quiet = DigestOfQuietRun(kRanks, kSteps);
  setenv("PAUSE_US", "10000", 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    const pid_t launcher = StartTraining(kRanks, kSteps);
    for (int death = 0, next = 1; death < kDeathsOfEach; ++death) {
      std::vector<testing::Place> places;
      while (static_cast<int>(places.size()) < kRanks) {
        ASSERT_TRUE(AwaitGeneration(next)) << Err();
        places = Last();
        if (!places.empty()) next = places[0].generation + 1;
      }
      absl::SleepFor(absl::Milliseconds(300));
      for (const testing::Place& place : places) {
        if (place.rank == rank) kill(place.pid, SIGKILL);
      }
    }
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
    remove((folder_ + "digest").c_str());
    remove((folder_ + "generations").c_str());
  }
}

TEST_F(WorldOnGpu, ShardsAnOptimizerWithTheBitsOfThePlainOne) {
  const std::string plain = DigestOfQuietRun(1, 60);
  EXPECT_THAT(plain, ::testing::Not(::testing::IsEmpty()));
  setenv("SHARDED", "1", 1);
  EXPECT_EQ(DigestOfQuietRun(2, 60), plain);
  for (const char* rank : {"0", "1"}) {
    SCOPED_TRACE(absl::StrCat("killed inside of a step: rank ", rank));
    setenv("FAULT", "dies", 1);
    setenv("FAULT_AT", "30", 1);
    setenv("FAULT_RANK", rank, 1);
    EXPECT_EQ(DigestOfQuietRun(2, 60), plain);
    EXPECT_THAT(Err(), ::testing::HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has 1 rank"));
  }
}

}  // namespace
}  // namespace lockstep::elastic
