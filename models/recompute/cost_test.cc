// Memory and time of Recompute() in a transformer of 12 layers. Prints the numbers.

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/counting_allocator.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/models/recompute/testing/same_bits.h"
#include "lockstep/models/recompute/testing/transformer.h"

namespace lockstep::models {
namespace {

using lockstep::testing::CountingAllocator;
using testing::ExpectSameBits;
using testing::Transformer;
using Tensors = std::vector<at::Tensor>;

Transformer TwelveLayers(bool recompute) {
  torch::manual_seed(1);
  return Transformer(12, /*width=*/256, /*heads=*/4, /*hidden=*/1024, recompute);
}

const at::Tensor& Input() {
  static const auto* const input = new at::Tensor(at::arange(64 * 8 * 256).mul(12.9898).sin().view({64, 8, 256}));
  return *input;
}

at::Tensor Forward(Transformer& net) { return net(Input()).square().mean(); }

// The processor's time, which other programs on the machine disturb less.
absl::Duration TimeOf(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return absl::Seconds(double(std::clock() - start) / CLOCKS_PER_SEC);
}

// Nanoseconds for an operation that saves a tensor.
double SavingTime() {
  const at::Tensor x = at::ones({1}).requires_grad_();
  absl::Duration least = absl::InfiniteDuration();
  for (int round = 0; round < 50; ++round) {
    least = std::min(least, TimeOf([&x] {
                       for (int i = 0; i < 2000; ++i) x.exp();
                     }));
  }
  return absl::ToDoubleNanoseconds(least / 2000);
}

// First: nothing has called Recompute() before.
TEST(RecomputeCost, ANetThatRecomputesNothingPaysNothing) {
  const double before = SavingTime();
  Recompute([](const at::Tensor& x) { return x.exp(); }, at::ones({1}).requires_grad_());
  double after = SavingTime();
  // The other thread of the processor's core may have been busy since then.
  for (int again = 0; again < 30 && after >= 1.5 * before; ++again) {
    absl::SleepFor(absl::Milliseconds(100));
    after = std::min(after, SavingTime());
  }
  std::cout << "an operation that saves a tensor: " << before << " ns before the first Recompute(), " << after
            << " ns after\n";
  EXPECT_LT(after, 1.5 * before) << "a quiet machine has at most 1.05";
}

TEST(RecomputeCost, TheBitsOfTwelveLayersAreTheSame) {
  for (const bool autocast : {false, true}) {
    const auto trained = [autocast](bool recompute) {
      Transformer net = TwelveLayers(recompute);
      Tensors all;
      for (int step = 0; step < 2; ++step) {
        std::optional<ddp::Autocast> in_bfloat16;
        if (autocast) in_bfloat16.emplace(at::kCPU, at::kBFloat16);
        all.push_back(net(Input().narrow(0, 0, 4)).to(at::kFloat).square().mean());
        in_bfloat16.reset();
        all.back().backward();
      }
      for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
      for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
      return all;
    };
    ExpectSameBits(trained(true), trained(false));
  }
}

TEST(RecomputeCost, ActivationsTakeSixtyPercentLessMemory) {
  CountingAllocator::Install();
  const auto peak = [](bool recompute) {
    Transformer net = TwelveLayers(recompute);
    Forward(net).backward();  // makes the gradients
    const int64_t before = CountingAllocator::bytes();
    CountingAllocator::Restart();
    Forward(net).backward();
    return CountingAllocator::peak() - before;
  };
  const int64_t plain = peak(false), recomputed = peak(true);
  std::cout << "peak of activations: " << plain / 1e6 << " MB without, " << recomputed / 1e6
            << " MB with Recompute()\n";
  EXPECT_LT(recomputed, 0.4 * plain);
}

TEST(RecomputeCost, AStepTakesOneMoreForward) {
  at::set_num_threads(1);
  Transformer plain = TwelveLayers(false), recomputed = TwelveLayers(true);
  absl::Duration forward = absl::InfiniteDuration(), step = forward, recomputed_step = forward;
  for (int round = 0; round < 6; ++round) {
    forward = std::min(forward, TimeOf([&plain] { Forward(plain); }));
    step = std::min(step, TimeOf([&plain] { Forward(plain).backward(); }));
    recomputed_step = std::min(recomputed_step, TimeOf([&recomputed] { Forward(recomputed).backward(); }));
  }
  const double share = absl::FDivDuration(forward, step), more = absl::FDivDuration(recomputed_step, step) - 1;
  std::cout << "a step: " << step << " without, " << recomputed_step << " with Recompute() (+" << 100 * more
            << " %); the forward: " << forward << " (" << 100 * share << " % of the step)\n";
  EXPECT_LT(more, share + 0.25) << "a quiet machine has at most 0.05 more than the share";
}

}  // namespace
}  // namespace lockstep::models
