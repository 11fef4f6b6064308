#include "lockstep/ddp/internal/used_parameters.h"

#include <torch/torch.h>

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp::internal {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

std::vector<int> Used(const UsedParameters& used, int parameters) {
  std::vector<int> all;
  for (int i = 0; i < parameters; ++i) {
    if (used.Used(i)) all.push_back(i);
  }
  return all;
}

TEST(UsedParameters, AreAllUnlessTheyAreMarked) {
  UsedParameters used;
  used.Mark(0);
  EXPECT_TRUE(used.Used(5));
  EXPECT_FALSE(used.NoneUsed({0, 1}));
  EXPECT_EQ(used.WaitForAll(), absl::OkStatus());
}

TEST(UsedParameters, OfAnyRankAreKnownAfterTheExchange) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         UsedParameters used(5, torch::kCPU, /*each_step=*/true);
                         for (int step = 0; step < 2; ++step) {
                           used.Mark(group.rank());
                           EXPECT_EQ(Used(used, 5), (std::vector<int>{group.rank()}));
                           used.StartExchange(group);
                           EXPECT_EQ(used.WaitForAll(), absl::OkStatus());
                           EXPECT_EQ(Used(used, 5), (std::vector<int>{0, 1, 2}));
                           EXPECT_TRUE(used.NoneUsed({3, 4}));
                           EXPECT_FALSE(used.NoneUsed({3, 2}));
                           used.EndStep();
                         }
                       }),
            absl::OkStatus());
}

TEST(UsedParameters, MayBeAllButSome) {
  UsedParameters used(4, torch::kCPU, /*each_step=*/true);
  used.MarkAllBut({0, 3});
  EXPECT_EQ(Used(used, 4), (std::vector<int>{1, 2}));
}

TEST(UsedParameters, OfAStaticGraphAreFinalAfterTheFirstStep) {
  UsedParameters used(2, torch::kCPU, /*each_step=*/false);
  EXPECT_FALSE(used.NoneUsed({0, 1}));  // not known yet
  used.Mark(1);
  used.EndStep();
  used.MakeFinal();
  used.Mark(0);
  used.EndStep();
  EXPECT_EQ(Used(used, 2), (std::vector<int>{1}));
  EXPECT_TRUE(used.NoneUsed({0}));
}

}  // namespace
}  // namespace lockstep::ddp::internal
