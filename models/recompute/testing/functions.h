// Functions for tests of Recompute(), and their inputs.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_TESTING_FUNCTIONS_H_
#define LOCKSTEP_MODELS_RECOMPUTE_TESTING_FUNCTIONS_H_

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/models/recompute/recompute.h"

namespace lockstep::models::testing {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

inline at::Tensor Input(at::IntArrayRef sizes, int64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator);
}

inline Tensors Inputs() {
  return {Input({4, 6}, 1).requires_grad_(), Input({6, 5}, 2).requires_grad_(), Input({4, 5}, 3)};
}

inline at::Tensor SumOf(const Tensors& outputs) {
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& output : outputs) sum = sum + output.square().sum();
  return sum;
}

// Two outputs of three inputs, of which the last needs no gradient.
inline Tensors Layer(const Tensors& inputs) {
  const at::Tensor hidden = at::tanh(at::mm(inputs[0], inputs[1])) * inputs[2];
  return {at::softmax(hidden, 1), hidden.exp().sum(0)};
}

inline Tensors Recomputed(const Function& function, const Tensors& inputs, const RecomputeOptions& options = {}) {
  return Recompute(function, inputs, options);
}

// A function that counts its calls, and how many of them come to its end.
struct Counted {
  Tensors operator()(const Tensors& inputs) const {
    ++counts->first;
    Tensors outputs = function(inputs);
    ++counts->second;
    return outputs;
  }
  Function function;
  std::shared_ptr<std::pair<int, int>> counts = std::make_shared<std::pair<int, int>>();
};

}  // namespace lockstep::models::testing

#endif  // LOCKSTEP_MODELS_RECOMPUTE_TESTING_FUNCTIONS_H_
