// Random operations, sizes, dtypes, timings and numbers of ranks against a reference.
//
//   ./bazelw run //comm/shm:communicator_stress_test -- --seconds=600
//
// A failure prints the seed; --seed=N runs it again.

#include <gflags/gflags.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/shm/testing/local_ranks.h"
#include "lockstep/comm/shm/testing/random_calls.h"

DEFINE_double(seconds, 4, "how long to go on");
DEFINE_uint64(seed, 1, "of the random operations");

namespace lockstep::comm::shm {
namespace {

using testing::RandomCall;
using testing::RankCall;

constexpr size_t kMostCallsUnderWay = 6;

// A rank's own hesitation, which the others do not know.
void Dawdle(std::mt19937_64& random) {
  const uint64_t draw = random() % 64;
  if (draw == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  if (draw < 8) std::this_thread::yield();
}

absl::Status FinishSome(std::vector<std::unique_ptr<RankCall>>& under_way, size_t keep, std::mt19937_64& own) {
  while (under_way.size() > keep) {
    const size_t which = own() % under_way.size();  // in any order
    LOCKSTEP_RETURN_IF_ERROR(under_way[which]->Finish(absl::Now() + absl::Seconds(60)));
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
  }
  return absl::OkStatus();
}

absl::Status RunCalls(Communicator& communicator, uint64_t seed, int calls, size_t most_bytes) {
  std::mt19937_64 shared(seed), own(seed * 1000 + communicator.rank());
  std::vector<std::unique_ptr<RankCall>> under_way;
  for (int i = 0; i < calls; ++i) {
    const RandomCall call = testing::DrawCall(shared, communicator.size(), most_bytes, i);
    under_way.push_back(std::make_unique<RankCall>(call, communicator));
    Dawdle(own);
    under_way.back()->Start();
    Dawdle(own);
    LOCKSTEP_RETURN_IF_ERROR(FinishSome(under_way, own() % kMostCallsUnderWay, own));
  }
  return FinishSome(under_way, 0, own);
}

TEST(CommunicatorStress, RandomCallsGiveTheReferencesBytes) {
  const absl::Time end = absl::Now() + absl::Seconds(FLAGS_seconds);
  uint64_t seed = FLAGS_seed;
  int64_t rounds = 0;
  do {
    for (const int size : {1, 2, 3, 4, 8}) {
      const size_t most_bytes = seed % 3 == 0 ? size_t{1} << 20 : size_t{40} << 10;
      const int calls = seed % 3 == 0 ? 15 : 80;
      ASSERT_EQ(
          testing::RunLocalRanksOk(size, [&](Communicator& ranks) { return RunCalls(ranks, seed, calls, most_bytes); }),
          absl::OkStatus())
          << "--seed=" << seed;
      ++rounds;
    }
    ++seed;
  } while (absl::Now() < end);
  std::cout << rounds << " communicators, seeds " << FLAGS_seed << " to " << seed - 1 << "\n";
}

}  // namespace
}  // namespace lockstep::comm::shm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return RUN_ALL_TESTS();
}
