#include "lockstep/elastic/internal/vote.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CountVotes, FindsTheRankThatDiffersAndNamesTheTensor) {
  const Vote vote = CountVotes({{1, 2, 3}, {1, 7, 3}, {1, 2, 3}}, {"a", "b", "c"});
  EXPECT_THAT(vote.majority, ElementsAre(0, 2));
  EXPECT_THAT(vote.outvoted, ElementsAre(1));
  EXPECT_EQ(vote.difference, "rank 1 differs in b");
}

TEST(CountVotes, NamesEachRankAndAFewTensors) {
  const Vote vote =
      CountVotes({{1, 1, 1, 1}, {2, 2, 2, 2}, {1, 1, 1, 1}, {1, 1, 1, 5}, {1, 1, 1, 1}}, {"a", "b", "c", "d"});
  EXPECT_EQ(vote.difference, "rank 1 differs in a, b, c and 1 more; rank 3 differs in d");
}

TEST(CountVotes, HasNoMajorityOfHalfTheRanks) {
  const Vote vote = CountVotes({{1, 2}, {1, 3}}, {"a", "b"});
  EXPECT_THAT(vote.majority, IsEmpty());
  EXPECT_EQ(vote.difference, "ranks 0, 1 differ in b");
  EXPECT_THAT(CountVotes({{1}, {2}, {2}, {1}}, {"a"}).majority, IsEmpty());
}

TEST(CountVotes, FindsNothingIfAllAreEqual) {
  const Vote vote = CountVotes({{1}, {1}, {1}}, {"a"});
  EXPECT_THAT(vote.outvoted, IsEmpty());
  EXPECT_EQ(vote.difference, "");
}

}  // namespace
}  // namespace lockstep::elastic::internal
