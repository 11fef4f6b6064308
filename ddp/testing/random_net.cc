#include "lockstep/ddp/testing/random_net.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::ddp::testing {
namespace {

constexpr int kRows = 3;

}  // namespace

RandomNetImpl::RandomNetImpl(const Combination& c, uint64_t seed)
    : layers(c.layers),
      branches(c.branches),
      dropout(c.dropout),
      broadcast_each_time(c.options.virtual_ranks > 0 || (c.unsynced == 0 && !c.join)) {
  auto generator = at::detail::createCPUGenerator(seed);
  const auto random = [&](at::IntArrayRef shape) {
    return (at::randn(shape, generator, at::kDouble) / std::sqrt(static_cast<double>(shape.back()))).to(c.dtype);
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    const bool tied = layer.tied_to >= 0;
    const at::Tensor weight = tied ? weights[layer.tied_to] : random({layer.out, layer.in});
    const bool trained = tied ? weight.requires_grad() : !layer.frozen_weight;
    weights.push_back(register_parameter(absl::StrCat("weight", i), weight, trained));
    biases.push_back(register_parameter(absl::StrCat("bias", i), random({layer.out}), !layer.frozen_bias));
  }
  if (c.buffer) shift = register_buffer("shift", at::full({1}, 0.1, c.dtype));
  if (!c.norm) return;
  norm = register_module("norm", torch::nn::BatchNorm1d(layers[0].out));
  norm->to(c.dtype);
}

at::Tensor RandomNetImpl::forward(at::Tensor x, int64_t pass, int rank) {
  if (shift.defined()) x = x + shift;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].branch && !Takes(i, pass, rank)) continue;
    for (int time = 0; time < layers[i].times; ++time) {
      const at::Tensor y = at::tanh(at::linear(x, weights[i], biases[i]));
      x = layers[i].branch ? x + y : y;
    }
    if (i == 0 && norm) x = norm(x);
    if (i == 0 && dropout > 0) x = x * at::empty_like(x).bernoulli_(1 - dropout, generator) / (1 - dropout);
  }
  return x.pow(2).mean();
}

bool RandomNetImpl::Takes(size_t layer, int64_t pass, int rank) const {
  if (branches == BranchUse::kAlways) return true;
  return Mix({static_cast<int64_t>(layer), branches == BranchUse::kByChance ? pass : 0, rank}) % 5 < 3;
}

void RandomNetImpl::MoveShift(int rank) {
  if (shift.defined()) shift += broadcast_each_time ? 0.01 * (1 + rank) : 0.01;
}

at::Tensor InputsOf(const Combination& c, int64_t pass, int rank) {
  return at::randn({kRows, Combination::kInputs}, at::detail::createCPUGenerator(Mix({c.seed, pass, rank})),
                   at::kDouble)
      .to(c.dtype);
}

torch::optim::SGD Optimizer(const Combination& c, std::vector<at::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters),
                           torch::optim::SGDOptions(0.1).momentum(c.momentum).weight_decay(c.weight_decay));
}

std::vector<at::Tensor> Once(const torch::nn::Module& module) {
  std::vector<at::Tensor> once;
  for (const at::Tensor& parameter : module.parameters()) {
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(once.begin(), once.end(), is_it)) once.push_back(parameter);
  }
  return once;
}

std::vector<at::Tensor> Copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
  return copies;
}

}  // namespace lockstep::ddp::testing
