// Trainings whose ranks die end with the bits of one that nobody has disturbed.

#include "lockstep/elastic/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/launch/testing/launch_program.h"
#include "lockstep/tools/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::Eventually;
using launch::testing::ReadFile;
using ::testing::HasSubstr;
using ::testing::Not;

// A line of $D/generations.
struct Place {
  int generation = 0, rank = 0, world_size = 0, commits = 0;
  pid_t pid = 0;
};

class WorldTest : public launch::testing::LaunchProgramTest {
 protected:
  pid_t StartTraining(int ranks, int steps, std::vector<std::string> flags = {}) {
    setenv("STEPS", absl::StrCat(steps).c_str(), 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    flags.push_back(absl::StrCat("--nproc_per_node=", ranks));
    flags.push_back(getenv("SMALL_TRAINING"));
    return Start(flags);
  }

  std::string DigestOfQuietRun(int ranks, int steps) {
    EXPECT_EQ(Wait(StartTraining(ranks, steps)), 0) << Err();
    const std::string digest = ReadFile(folder_ + "digest");
    remove((folder_ + "digest").c_str());
    remove((folder_ + "generations").c_str());
    return digest;
  }

  // The places of the last generation, in any order, once all of its ranks train.
  std::vector<Place> Last() const {
    std::vector<Place> last;
    for (const absl::string_view line : absl::StrSplit(ReadFile(folder_ + "generations"), '\n', absl::SkipEmpty())) {
      Place place;
      if (sscanf(std::string(line).c_str(), "%d %d of %d, pid %d, commits %d", &place.generation, &place.rank,
                 &place.world_size, &place.pid, &place.commits) != 5) {
        continue;
      }
      if (!last.empty() && last[0].generation != place.generation) last.clear();
      last.push_back(place);
    }
    return !last.empty() && static_cast<int>(last.size()) == last[0].world_size ? last : std::vector<Place>();
  }

  bool AwaitGeneration(int number) {
    return Eventually([&] { return !Last().empty() && Last()[0].generation >= number; }, absl::Seconds(60));
  }
};

TEST_F(WorldTest, EndsWithTheSameBitsAfterAnyRankHasDied) {
  const std::string quiet = DigestOfQuietRun(3, 300);
  ASSERT_THAT(quiet, Not(::testing::IsEmpty()));
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    setenv("PAUSE_US", "5000", 1);
    const pid_t launcher = StartTraining(3, 300);
    unsetenv("PAUSE_US");
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    absl::SleepFor(absl::Milliseconds(200));
    for (const Place& place : Last()) {
      if (place.rank == rank) kill(place.pid, SIGKILL);
    }
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), quiet);
    EXPECT_THAT(Err(), HasSubstr("generation 2 has 2 ranks\n"));
    EXPECT_THAT(Err(), HasSubstr("generation 3 has 3 ranks\n"));
    remove((folder_ + "digest").c_str());
    remove((folder_ + "generations").c_str());
  }
}

TEST_F(WorldTest, EndsWithTheSameBitsAfterManyDeaths) {
  const std::string quiet = DigestOfQuietRun(1, 400);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(4, 400);
  unsetenv("PAUSE_US");
  std::mt19937 random(11);
  int deaths = 0;
  for (int generation = 1; deaths < 12 && AwaitGeneration(generation);) {
    std::vector<Place> places = Last();
    if (places.empty()) continue;
    generation = places[0].generation + 1;
    if (places[0].commits > 330) break;
    // Generations that all end before a step would end the job.
    if (generation % 4 == 0) absl::SleepFor(absl::Seconds(1));
    std::shuffle(places.begin(), places.end(), random);
    absl::SleepFor(absl::Milliseconds(random() % 100));
    // Somebody must be left who has the state.
    const size_t most = std::min<size_t>(places.size() - 1, 2);
    for (size_t i = 0; i < most; ++i, ++deaths) kill(places[i].pid, SIGKILL);
  }
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_GE(deaths, 6);
}

TEST(World, NeedsALauncher) {
  EXPECT_THAT(std::string(World::Join().status().message()), HasSubstr("not started by Lockstep's launch"));
  Options options;
  options.min_ranks = 0;
  EXPECT_EQ(World::Join(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::elastic
