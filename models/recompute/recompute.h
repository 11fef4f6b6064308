// Runs a part of a network without keeping its activations: torch.utils.checkpoint for C++.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_RECOMPUTE_H_
#define LOCKSTEP_MODELS_RECOMPUTE_RECOMPUTE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::models {

// Names, meanings and defaults are the same as in torch.utils.checkpoint, except where noted.
struct RecomputeOptions {
  // True if the second forward draws the random numbers of the first: the default generators of the CPU and of the
  // inputs' CUDA devices are set back for it, and afterwards continue where they were.
  bool preserve_rng_state = true;

  // True if the tensors that the second forward saves must have the shapes, dtypes and devices of the first's, and come
  // from the same kinds of operations. Python does not compare the last.
  bool determinism_check = true;

  // True if the second forward ends as soon as it has saved the last tensor that backward needs.
  bool early_stop = true;

  // Not in PyTorch. More generators that the function draws from. They are treated as the default ones are.
  std::vector<at::Generator> generators;

  // Not in PyTorch. Tensors that the function changes in place, such as BatchNorm's running averages: after the second
  // forward they get back the values that they had before it. Default for a module: its buffers.
  std::vector<at::Tensor> buffers;
};

namespace internal {

// Calls first() so that autograd saves nothing of it, and calls again(inputs) when backward needs what it would have
// saved.
void RunFirst(std::function<void(const std::vector<at::Tensor>& inputs)> again, const std::vector<at::Tensor>& inputs,
              const RecomputeOptions& options, const std::function<void()>& first);

// `options`, with the buffers of a module.
template <typename Function>
RecomputeOptions WithBuffers(RecomputeOptions options, const Function& function) {
  if constexpr (torch::detail::is_module_holder<Function>::value) {
    if (options.buffers.empty()) options.buffers = function->buffers();
  }
  return options;
}

}  // namespace internal

// Returns function(inputs). Autograd keeps the inputs, but none of the tensors that it saves while the function runs.
// When backward needs the first of them, the function runs again. Results and gradients are the bits that they are
// without Recompute().
//
//   at::Tensor forward(at::Tensor x) {
//     for (auto& block : blocks) x = models::Recompute(block, x);                                     // a module
//     return models::Recompute([head = head](const at::Tensor& x) mutable { return head(x).relu(); }, x);  // a function
//   }
//
// `function` takes std::vector<at::Tensor>, or one at::Tensor for the second form, and returns anything: tensors,
// tuples, structs. It must compute the same each time, from its inputs and from tensors that do not change in between,
// such as parameters. It is copied and kept as long as the graph: do not capture references to what ends before.
// Inputs may be undefined, need not require gradients, and are best not captured: an input that an outer Recompute()
// computed is kept only as long as that one keeps it.
//
// Calls may be nested. Several backward passes, with retain_graph, each run the function again. Double backward,
// torch::autograd::grad() inside the function, and gradients of some outputs only work. Without gradient mode, this is
// function(inputs). Any thread may call it, and backward may be on any thread. Of ranks, each calls it by itself.
//
// Throws what the function throws. Backward throws what the second forward throws, and StatusError with
// FailedPrecondition: the second forward saved fewer or (without early_stop) more tensors than the first, or others
// (see determinism_check), or changed one in place afterwards.
template <typename Function>
auto Recompute(Function function, const std::vector<at::Tensor>& inputs, const RecomputeOptions& options = {}) {
  const auto shared = std::make_shared<Function>(std::move(function));
  std::optional<decltype((*shared)(inputs))> result;
  internal::RunFirst([shared](const std::vector<at::Tensor>& again) { (*shared)(again); }, inputs, options,
                     [&] { result.emplace((*shared)(inputs)); });
  return *std::move(result);
}

template <typename Function>
auto Recompute(Function function, const at::Tensor& input, const RecomputeOptions& options = {}) {
  RecomputeOptions all = internal::WithBuffers(options, function);
  return Recompute([f = std::move(function)](const std::vector<at::Tensor>& inputs) mutable { return f(inputs[0]); },
                   std::vector<at::Tensor>{input}, all);
}

// Returns the result of `functions`, each called with the result of the one before. They are divided into `segments`
// of equal length, of which the last takes the rest. As in Python, the last one is not recomputed: its activations are
// needed at once. Throws StatusError with InvalidArgument: `segments` is not in 1 .. functions.size().
at::Tensor RecomputeSequential(const std::vector<std::function<at::Tensor(const at::Tensor&)>>& functions, int segments,
                               at::Tensor input, const RecomputeOptions& options = {});

// The modules of a Sequential, which take and return one tensor each.
at::Tensor RecomputeSequential(const torch::nn::Sequential& modules, int segments, at::Tensor input,
                               const RecomputeOptions& options = {});

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_RECOMPUTE_RECOMPUTE_H_
