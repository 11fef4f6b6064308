#include "lockstep/examples/ranks/finish.h"

#include "gtest/gtest.h"

namespace lockstep::examples {
namespace {

TEST(OfRank, NamesTheRankOnce) {
  EXPECT_EQ(OfRank(absl::InternalError("no disk"), 2).message(), "rank 2: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 2: no disk"), 2).message(), "rank 2: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 2 of 3: no disk"), 2).message(), "rank 2 of 3: no disk");
  EXPECT_EQ(OfRank(absl::InternalError("rank 21 left"), 2).message(), "rank 2: rank 21 left");
  EXPECT_TRUE(OfRank(absl::OkStatus(), 2).ok());
}

}  // namespace
}  // namespace lockstep::examples
