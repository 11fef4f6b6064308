#include "lockstep/ddp/zero/internal/shards.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::ddp::zero::internal {
namespace {

using ::testing::ElementsAre;

TEST(AssignOwners, GivesTheLargestFirstToTheRankWithTheLeast) {
  // 9 -> 0, 7 -> 1, 6 -> 2, 5 -> 2 (6), 4 -> 1 (7), 1 -> 0 (9)
  EXPECT_THAT(AssignOwners({{4, 9, 1, 7, 6, 5}}, 3), ElementsAre(ElementsAre(1, 0, 0, 1, 2, 2)));
}

TEST(AssignOwners, KeepsTheOrderOfEquals) {
  EXPECT_THAT(AssignOwners({{2, 2, 2, 2, 2}}, 2), ElementsAre(ElementsAre(0, 1, 0, 1, 0)));
}

TEST(AssignOwners, GoesOnWithTheLoadsOfTheGroupsBefore) {
  EXPECT_THAT(AssignOwners({{10}, {3, 4}, {}, {8}}, 2),
              ElementsAre(ElementsAre(0), ElementsAre(1, 1), ElementsAre(), ElementsAre(1)));
}

TEST(AssignOwners, LeavesRanksWithoutParametersWhereThereAreFew) {
  EXPECT_THAT(AssignOwners({{5}}, 3), ElementsAre(ElementsAre(0)));
}

}  // namespace
}  // namespace lockstep::ddp::zero::internal
