// Recompute() on a GPU, with --config=cuda. Backward runs on autograd's thread of the device.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/models/recompute/recompute.h"
#include "lockstep/models/recompute/testing/same_bits.h"

namespace lockstep::models {
namespace {

using testing::ExpectSameBits;
using Tensors = std::vector<at::Tensor>;

at::Tensor OnGpu(at::IntArrayRef sizes) { return at::rand(sizes, at::device(at::kCUDA)).requires_grad_(); }

// Draws from the GPU's generator, and from the CPU's.
Tensors Dropout(const Tensors& inputs) {
  const at::Tensor hidden = at::dropout(at::mm(inputs[0], inputs[1]).tanh(), 0.4, /*train=*/true);
  return {at::dropout(hidden.exp(), 0.2, true) * at::rand({1}).item<double>()};
}

Tensors Trained(bool recompute, const std::function<Tensors(const Tensors&)>& function) {
  torch::manual_seed(5);
  const Tensors inputs = {OnGpu({32, 16}), OnGpu({16, 16})};
  const Tensors outputs = recompute ? Recompute(function, inputs) : function(inputs);
  const at::Tensor next = at::rand({4}, at::device(at::kCUDA));
  outputs[0].square().sum().backward();
  return {outputs[0], next, inputs[0].grad(), inputs[1].grad(), at::rand({4}, at::device(at::kCUDA)), at::rand({4})};
}

TEST(RecomputeOnGpu, DrawsTheSameRandomNumbers) { ExpectSameBits(Trained(true, Dropout), Trained(false, Dropout)); }

TEST(RecomputeOnGpu, CallsMayBeNested) {
  const auto twice = [](const Tensors& inputs) { return Dropout({Dropout(inputs)[0], inputs[1]}); };
  const auto nested = [](const Tensors& inputs) {
    return Recompute(Dropout, {Recompute(Dropout, inputs)[0], inputs[1]});
  };
  ExpectSameBits(Trained(true, nested), Trained(false, twice));
}

// The tensors of both devices' threads are of one call.
TEST(RecomputeOnGpu, TheCpusThreadAndTheGpusMayNeedOneCallTogether) {
  for (int i = 0; i < 100; ++i) {
    const Tensors inputs = {OnGpu({32, 16}), at::rand({32, 16}).requires_grad_()};
    const Tensors outputs = Recompute(
        [](const Tensors& inputs) {
          return Tensors{inputs[0].exp().tanh().sum(), inputs[1].exp().tanh().sum()};
        },
        inputs);
    torch::autograd::backward(outputs, {});
    for (const at::Tensor& input : inputs) {
      const at::Tensor plain = input.detach().clone().requires_grad_();
      plain.exp().tanh().sum().backward();
      ExpectSameBits({input.grad()}, {plain.grad()});
    }
  }
}

}  // namespace
}  // namespace lockstep::models
