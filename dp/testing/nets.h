// Nets and comparisons for tests of DataParallel.

#ifndef LOCKSTEP_DP_TESTING_NETS_H_
#define LOCKSTEP_DP_TESTING_NETS_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/dp/data_parallel.h"

namespace lockstep::dp::testing {

// The CPU `count` times.
inline Options OnCpus(size_t count) {
  Options options;
  options.device_ids.assign(count, DeviceId(-1));
  return options;
}

// Calls Wrap() and throws its error.
template <typename Net>
DataParallel<Net> Wrapped(Net net, const Options& options) {
  auto model = Wrap(std::move(net), options);
  ThrowIfError(model.status());
  return *std::move(model);
}

// The message of the exception of f().
template <typename F>
std::string Message(F&& f) {
  return std::string(TorchStatus("", f).message());
}

// In double.
struct MlpImpl : torch::nn::Cloneable<MlpImpl> {
  MlpImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x).tanh()); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Mlp);

template <typename Net>
Net Seeded(uint64_t seed = 1) {
  torch::manual_seed(seed);
  return Net();
}

template <typename Net>
std::vector<at::Tensor> Gradients(const Net& net) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

// Within `tolerance` of the largest.
inline void ExpectClose(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                        double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double largest = expected[i].abs().max().item<double>();
    EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), tolerance * largest) << "gradient " << i;
  }
}

}  // namespace lockstep::dp::testing

#endif  // LOCKSTEP_DP_TESTING_NETS_H_
