#include "lockstep/elastic/testing/small_training_program.h"

#include <stdio.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::testing {

using launch::testing::Eventually;
using launch::testing::ReadFile;

void SmallTrainingTest::TearDown() {
  for (const char* name : {"BACKEND", "BEGIN_AT", "CHECK_EVERY", "DEVICE", "FAULT", "FAULT_AT", "FAULT_RANK",
                           "FAULT_US", "LEAVE_MS", "MAX_RANKS", "MIN_RANKS", "MIXED", "PAUSE_US", "REFUSE_NON_FINITE",
                           "REGROUPS", "SHARDED", "TIMEOUT_MS", "VIRTUAL_RANKS", "WAIT_MS"}) {
    unsetenv(name);
  }
}

pid_t SmallTrainingTest::StartTraining(int ranks, int steps, std::vector<std::string> flags) {
  setenv("STEPS", absl::StrCat(steps).c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  flags.push_back(absl::StrCat("--nproc_per_node=", ranks));
  flags.push_back(getenv("SMALL_TRAINING"));
  return Start(flags);
}

std::string SmallTrainingTest::DigestOfQuietRun(int ranks, int steps) {
  EXPECT_EQ(Wait(StartTraining(ranks, steps)), 0) << Err();
  const std::string digest = ReadFile(folder_ + "digest");
  remove((folder_ + "digest").c_str());
  remove((folder_ + "generations").c_str());
  return digest;
}

std::vector<Place> SmallTrainingTest::Last() const {
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

bool SmallTrainingTest::AwaitGeneration(int number) {
  const auto trains = [&] {
    const std::vector<Place> last = Last();  // may be empty the next time
    return !last.empty() && last[0].generation >= number;
  };
  return Eventually(trains, absl::Seconds(60));
}

}  // namespace lockstep::elastic::testing
