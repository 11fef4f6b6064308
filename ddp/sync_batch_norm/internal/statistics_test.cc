#include "lockstep/ddp/sync_batch_norm/internal/statistics.h"

#include <torch/torch.h>

#include <vector>

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

torch::Tensor Values(std::vector<int64_t> shape, uint64_t seed = 1) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

// One row a channel.
torch::Tensor ByChannel(const torch::Tensor& input) { return input.transpose(0, 1).flatten(1); }

double LargestDifference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

TEST(LocalStatistics, AreMeanSquaredDeviationsAndCountOfEachChannel) {
  const torch::Tensor input = Values({5, 3, 4, 2});
  const torch::Tensor local = LocalStatistics(input);
  ASSERT_EQ(local.sizes(), (std::vector<int64_t>{7}));
  EXPECT_LT(LargestDifference(local.slice(0, 0, 3), ByChannel(input).mean(1)), 1e-14);
  EXPECT_LT(LargestDifference(local.slice(0, 3, 6), ByChannel(input).var(1, false) * 40), 1e-12);
  EXPECT_EQ(local[6].item<double>(), 40);
}

TEST(LocalStatistics, AreTheSameWhateverTheMemoryFormat) {
  const torch::Tensor input = Values({5, 3, 4, 2});
  EXPECT_LT(LargestDifference(LocalStatistics(input.contiguous(torch::MemoryFormat::ChannelsLast)),  //
                              LocalStatistics(input)),
            1e-12);
}

TEST(LocalStatistics, SumHalfAndBfloat16InFloat) {
  // In bfloat16 itself 256 + 1 is 256.
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    const torch::Tensor local = LocalStatistics(torch::ones({1000, 2}, dtype));
    EXPECT_EQ(local[0].item<double>(), 1);
    EXPECT_EQ(local[2].item<double>(), 0);
  }
}

TEST(LocalStatistics, OfNothingAreZeros) {
  EXPECT_TRUE(LocalStatistics(torch::empty({0, 3, 4})).equal(torch::zeros({7}, torch::kDouble)));
}

TEST(CombineStatistics, GivesThoseOfAllValuesTogether) {
  const torch::Tensor input = Values({11, 3, 2});
  const torch::Tensor gathered =
      torch::stack({LocalStatistics(input.slice(0, 0, 2)), LocalStatistics(input.slice(0, 2, 2)),
                    LocalStatistics(input.slice(0, 2, 3)), LocalStatistics(input.slice(0, 3))});
  const BatchStatistics all = CombineStatistics(gathered);
  EXPECT_EQ(all.count, 22);
  EXPECT_LT(LargestDifference(all.mean, ByChannel(input).mean(1)), 1e-15);
  EXPECT_LT(LargestDifference(all.variance, ByChannel(input).var(1, false)), 1e-14);
}

TEST(CombineStatistics, KeepsASmallVarianceAroundALargeMean) {
  // Sums of squares would be 1e16 a value, whose last digit counts 2 in double: a variance of 1 would drown.
  const torch::Tensor deviations = Values({1000, 1});
  const torch::Tensor input = deviations + 1e8;
  const BatchStatistics all =
      CombineStatistics(torch::stack({LocalStatistics(input.slice(0, 0, 400)), LocalStatistics(input.slice(0, 400))}));
  EXPECT_LT(LargestDifference(all.variance, deviations.var(0, false)), 1e-7);
}

}  // namespace
}  // namespace lockstep::ddp::internal
