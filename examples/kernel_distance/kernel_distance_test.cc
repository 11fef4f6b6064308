#include "lockstep/examples/kernel_distance/kernel_distance.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/peak_memory.h"
#include "lockstep/models/resnet.h"

namespace lockstep::examples {
namespace {

using ::testing::HasSubstr;

at::Tensor Weight(at::IntArrayRef shape) {
  torch::manual_seed(1);
  return at::randn(shape).requires_grad_();
}

KernelDistanceOptions On(int devices, int64_t block_bytes = int64_t{64} << 20) {
  KernelDistanceOptions options;
  options.devices.assign(devices, c10::Device(c10::kCPU));
  options.block_bytes = block_bytes;
  return options;
}

struct Result {
  at::Tensor distance, gradient;
};

Result Whole(const at::Tensor& weight, const KernelDistanceOptions& options, double factor = 1) {
  weight.mutable_grad() = at::Tensor();
  const at::Tensor distance = KernelDistance(weight, options);
  (distance * factor).backward();
  return {distance.detach(), weight.grad().clone()};
}

Result BlockByBlock(const at::Tensor& weight, const KernelDistanceOptions& options, double factor = 1) {
  weight.mutable_grad() = at::Tensor();
  const at::Tensor distance = AccumulateKernelDistance(weight, factor, options);
  return {distance, weight.grad().clone()};
}

void ExpectSameBits(const Result& a, const Result& b) {
  EXPECT_TRUE(a.distance.equal(b.distance)) << a.distance.item<double>() << " " << b.distance.item<double>();
  EXPECT_TRUE(a.gradient.equal(b.gradient)) << (a.gradient - b.gradient).abs().max().item<double>();
}

// Pair by pair, as one would write it down.
Result ByDoubleLoop(const at::Tensor& weight) {
  weight.mutable_grad() = at::Tensor();
  at::Tensor total = at::zeros({});
  for (int64_t p = 0; p < weight.size(0); ++p) {
    for (int64_t q = 0; q < weight.size(0); ++q) total = total + (weight[p] - weight[q]).abs().sum();
  }
  total.backward();
  return {total.detach(), weight.grad().clone()};
}

// For each place of a kernel on its own: of n sorted values the i-th (from 0) is the larger one of i pairs and the
// smaller one of n - 1 - i. In double precision.
Result BySorting(const at::Tensor& weight) {
  const int64_t n = weight.size(0);
  const auto [values, order] = weight.detach().to(at::kDouble).flatten(1).sort(0);
  const at::Tensor share = 2 * (2 * at::arange(n, at::kDouble) - (n - 1)).unsqueeze(1);
  const at::Tensor gradient = at::zeros_like(values).scatter_(0, order, share.expand_as(values).contiguous());
  return {(values * share).sum(), gradient.view(weight.sizes())};
}

void ExpectNear(const Result& actual, const Result& expected, double tolerance) {
  EXPECT_NEAR(actual.distance.item<double>() / expected.distance.item<double>(), 1, tolerance);
  const double largest = expected.gradient.abs().max().item<double>();
  EXPECT_LE((actual.gradient - expected.gradient).abs().max().item<double>() / largest, tolerance);
}

TEST(KernelDistance, IsWhatADoubleLoopOverTheKernelsGives) {
  const at::Tensor weight = Weight({6, 2, 3, 3});
  ExpectNear(Whole(weight, On(1)), ByDoubleLoop(weight), 1e-6);
  ExpectNear(Whole(weight, On(3)), ByDoubleLoop(weight), 1e-6);
}

TEST(KernelDistance, IsWhatSortingGivesForAFullSizedLayer) {
  const at::Tensor weight = Weight({256, 64, 3, 3});
  ExpectNear(Whole(weight, On(2)), BySorting(weight), 1e-6);
}

TEST(KernelDistance, HasTheSameBitsForAnyNumberOfDevicesAndAnyBlocks) {
  const at::Tensor weight = Weight({37, 5, 3, 3});
  const Result one = Whole(weight, On(1), 0.3);
  for (const int devices : {1, 2, 4, 40}) {
    for (const int64_t block_bytes : {int64_t{1}, int64_t{5} * weight.numel() * 4, int64_t{64} << 20}) {
      ExpectSameBits(Whole(weight, On(devices, block_bytes), 0.3), one);
      ExpectSameBits(BlockByBlock(weight, On(devices, block_bytes), 0.3), one);
    }
  }
}

TEST(KernelDistance, OfAlikeKernelsIsZeroAndSoIsItsGradient) {
  const at::Tensor weight = at::full({4, 2, 3, 3}, 0.5).requires_grad_();
  const Result result = Whole(weight, On(2));
  EXPECT_EQ(result.distance.item<double>(), 0);
  EXPECT_EQ(result.gradient.abs().max().item<double>(), 0);
}

TEST(KernelDistance, IsPartOfALargerGraph) {
  const at::Tensor weight = Weight({5, 2, 3, 3});
  const at::Tensor gradient = Whole(weight, On(1)).gradient;
  weight.mutable_grad() = at::Tensor();
  (weight.sum() + 2 * KernelDistance(weight * 3, On(2))).backward();  // |3p - 3q| = 3 |p - q|
  EXPECT_TRUE(weight.grad().allclose(1 + 6 * gradient));
}

TEST(KernelDistance, AccumulatesOnTopOfTheGradientThatIsThere) {
  const at::Tensor weight = Weight({9, 2, 3, 3});
  const at::Tensor gradient = Whole(weight, On(1)).gradient;
  weight.mutable_grad() = at::ones_like(weight);
  EXPECT_FALSE(AccumulateKernelDistance(weight, 0.5, On(2, 1)).requires_grad());
  EXPECT_TRUE(weight.grad().equal(1 + 0.5 * gradient));
}

TEST(KernelDistance, BlockByBlockTakesLessMemory) {
  const at::Tensor weight = Weight({512, 2, 1, 1});
  weight.mutable_grad() = at::zeros_like(weight);
  const KernelDistanceOptions options = On(2, /*block_bytes=*/16 * weight.numel() * 4);
  const auto peak = [&](auto&& compute) {
    const PeakMemory memory;
    compute();
    return memory.bytes();
  };
  const int64_t whole = peak([&] { KernelDistance(weight, options).backward(); });
  const int64_t blocks = peak([&] { AccumulateKernelDistance(weight, 1, options); });
  EXPECT_GE(whole, 512 * 512 * 4) << "a number for each pair";
  EXPECT_LE(whole, 4 * 512 * 512 * 4) << "and not for each difference";
  EXPECT_GE(blocks, 2 * 16 * 512 * 4) << "the two blocks' pairs";
  EXPECT_LT(blocks, whole / 5);
}

TEST(KernelDistance, OfAResNetIsThatOfItsTwentyConvolutions) {
  const models::ResNet net = models::ResNet18(10);
  const std::vector<at::Tensor> weights = ConvolutionWeights(*net);
  ASSERT_EQ(weights.size(), 20);
  EXPECT_EQ(weights[0].sizes(), at::IntArrayRef({64, 3, 7, 7}));
  EXPECT_TRUE(weights[0].is_same(net->named_parameters()["conv1.weight"]));
}

template <typename F>
void ExpectValueError(F&& f, const std::string& message) {
  try {
    f();
    FAIL() << "nothing was thrown, expected: " << message;
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr(message));
  }
}

TEST(KernelDistance, RefusesWhatItCannotDo) {
  const at::Tensor weight = Weight({4, 2, 1, 1});
  ExpectValueError([&] { KernelDistance(weight, On(1, 0)); },
                   "kernel distance: expected block_bytes to be 1 or more, found 0");
  ExpectValueError([&] { KernelDistance(weight, On(0)); }, "expected one device or more, found none");
  ExpectValueError([&] { AccumulateKernelDistance(weight.detach(), 1, On(1)); },
                   "kernel distance: expected a leaf that requires gradients to accumulate them in");
}

}  // namespace
}  // namespace lockstep::examples
