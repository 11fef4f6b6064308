// The algorithm of LibTorch's torch::nn::parallel::data_parallel, written from its description, for any device:
// LibTorch's scatter and gather need CUDA tensors. Every call clones the module for every device, connects each cloned
// parameter to the module's by an edge that sums gradients, runs the clones under at::parallel_for, and concatenates
// their outputs.

#ifndef LOCKSTEP_TOOLS_BENCH_CLONE_EVERY_CALL_H_
#define LOCKSTEP_TOOLS_BENCH_CLONE_EVERY_CALL_H_

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

class SumOfClones : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor sum = at::zeros_like(gradients[0]);
    for (const at::Tensor& gradient : gradients) sum.add_(gradient);
    return {sum};
  }
};

template <typename Module>
std::vector<std::shared_ptr<Module>> Clones(const Module& module, int64_t count) {
  std::vector<std::shared_ptr<Module>> clones;
  for (int64_t i = 0; i < count; ++i) clones.push_back(std::dynamic_pointer_cast<Module>(module.clone()));
  const auto parameters = module.named_parameters();
  for (const auto& parameter : parameters) {
    const auto sum = std::make_shared<SumOfClones>();
    sum->set_next_edges(torch::autograd::collect_next_edges(parameter.value()));
    for (const auto& clone : clones) {
      torch::autograd::set_history(clone->named_parameters()[parameter.key()], sum);
    }
  }
  return clones;
}

template <typename Module>
at::Tensor CloneEveryCall(const Module& module, const at::Tensor& inputs, int64_t replicas) {
  const std::vector<at::Tensor> chunks = inputs.chunk(replicas);
  const std::vector<std::shared_ptr<Module>> clones = Clones(module, static_cast<int64_t>(chunks.size()));
  std::vector<at::Tensor> outputs(chunks.size());
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) outputs[i] = clones[i]->forward(chunks[i]);
  });
  return at::cat(outputs);
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_CLONE_EVERY_CALL_H_
