#include "lockstep/elastic/internal/transfer_plan.h"

#include <map>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::vector<int> Ranks(int begin, int end) {
  std::vector<int> ranks(end - begin);
  std::iota(ranks.begin(), ranks.end(), begin);
  return ranks;
}

TEST(PlanTransfer, CoversEveryByteOnce) {
  const std::vector<int64_t> sizes = {10, 0, 25, 8, 1};
  std::vector<int64_t> covered(sizes.size());
  for (const Piece& piece : PlanTransfer(sizes, {1, 3}, /*piece_bytes=*/8)) {
    EXPECT_EQ(piece.begin, covered[piece.tensor]);
    EXPECT_GT(piece.size, 0);
    EXPECT_LE(piece.size, 8);
    covered[piece.tensor] += piece.size;
  }
  EXPECT_EQ(covered, sizes);
}

TEST(PlanTransfer, GivesEachSourceAboutTheSameNumberOfBytes) {
  std::map<int, int64_t> loads;
  for (const Piece& piece : PlanTransfer({1000, 3, 500, 77}, {0, 2, 5}, /*piece_bytes=*/10)) {
    loads[piece.source] += piece.size;
  }
  ASSERT_EQ(loads.size(), 3);
  for (const auto& [source, load] : loads) EXPECT_NEAR(load, 1580 / 3, 10) << source;
}

// The number of messages grows with the state, not with the number of ranks.
TEST(PlanTransfer, NeedsAsManyMessagesForManyRanks) {
  for (const int ranks : {4, 16, 256}) {
    EXPECT_EQ(PlanTransfer({1024 * kMiB}, Ranks(0, ranks - 1)).size(), 256) << ranks;
  }
}

TEST(Broadcasts, IfThereAreMoreReceiversThanSources) {
  EXPECT_FALSE(Broadcasts(3, 1));
  EXPECT_FALSE(Broadcasts(1, 1));
  EXPECT_TRUE(Broadcasts(1, 2));
}

}  // namespace
}  // namespace lockstep::elastic::internal
