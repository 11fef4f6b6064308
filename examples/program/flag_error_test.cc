#include "lockstep/examples/program/flag_error.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::examples {
namespace {

TEST(CheckRanges, NamesTheFirstValueThatIsNotInItsRange) {
  EXPECT_TRUE(CheckRanges({{"lr", 0, 0}, {"epochs", 1e9, 1}}).ok());
  EXPECT_EQ(CheckRanges({{"lr", 0.1, 0}, {"epochs", 0, 1}}).message(), "--epochs=0: expected 1 or more");
  EXPECT_EQ(CheckRanges({{"lr", NAN, 0}}).message(), "--lr=nan: expected 0 or more");
  EXPECT_EQ(CheckRanges({{"lr", -INFINITY, 0}}).message(), "--lr=-inf: expected 0 or more");
  EXPECT_EQ(CheckRanges({{"lr", INFINITY, 0}}).message(), "--lr=inf: expected at most 1000000000");
  EXPECT_EQ(CheckRanges({{"workers", 5000, 1, 4096}}).message(), "--workers=5000: expected at most 4096");
}

TEST(CheckSeconds, TakesPositiveFiniteOnes) {
  EXPECT_TRUE(CheckSeconds("timeout", 0.5).ok());
  for (const double value : std::vector<double>{0, -1, INFINITY, 1e300, NAN}) {
    EXPECT_FALSE(CheckSeconds("timeout", value).ok()) << value;
  }
}

TEST(OfRank, NamesTheRankOnce) {
  EXPECT_EQ(OfRank(absl::InternalError("no disk"), 2).message(), "rank 2: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 2: no disk"), 2).message(), "rank 2: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 2 of 3: no disk"), 2).message(), "rank 2 of 3: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 21 left"), 2).message(), "rank 2: rank 21 left");
  EXPECT_TRUE(OfRank(absl::OkStatus(), 2).ok());
}

}  // namespace
}  // namespace lockstep::examples
