#include "lockstep/base/nearest_name.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

const std::vector<std::string> kFlags = {"epochs", "start_epoch", "batch_size", "lr", "dist_backend", "workers"};

TEST(NearestName, IsTheOneWithTheFewestEdits) {
  EXPECT_EQ(NearestName("epoch", kFlags), "epochs");
  EXPECT_EQ(NearestName("epcohs", kFlags), "epochs");
  EXPECT_EQ(NearestName("bach_size", kFlags), "batch_size");
  EXPECT_EQ(NearestName("l", kFlags), "lr");
}

TEST(NearestName, IsElseOneThatContainsItOrThatItContains) {
  EXPECT_EQ(NearestName("backend", kFlags), "dist_backend");
  EXPECT_EQ(NearestName("num_workers", kFlags), "workers");
  EXPECT_EQ(NearestName("rank", {"virtual_local_rank", "node_rank", "local_ranks_filter"}), "node_rank");
}

TEST(NearestName, IsNothingWhereNoneIsClose) {
  EXPECT_EQ(NearestName("verbosity", kFlags), std::nullopt);
  EXPECT_EQ(NearestName("", kFlags), std::nullopt);
  EXPECT_EQ(NearestName("x", {}), std::nullopt);
  EXPECT_EQ(NearestName(std::string(1000000, 'e'), kFlags), std::nullopt);
}

TEST(NearestName, CountsASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(NearestName("abc", {"bac", "xyz"}), "bac");
  EXPECT_EQ(NearestName("abc", {"cab"}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
