// Beside Python: testdata/make_golden.py.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>

#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/dp/data_parallel.h"

namespace lockstep::dp {
namespace {

using checkpoint::Value;

template <typename T>
T OrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

torch::nn::Sequential Net() {
  return torch::nn::Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                               torch::nn::Flatten(), torch::nn::Linear(4 * 4 * 4, 2));
}

// Returns the tensor of golden at `path`.
at::Tensor TensorAt(const Value& golden, const checkpoint::KeyPath& path) {
  return OrThrow(checkpoint::GetTensor(golden, path));
}

void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(actual.allclose(expected, 1e-5, 1e-6)) << what;
}

TEST(DataParallel, HasPythonsOutputsGradientsAndBatchNormStatistics) {
  const Value golden = OrThrow(checkpoint::Load("dp/testdata/batch_norm.pt"));
  torch::nn::Sequential net = Net();
  ThrowIfError(checkpoint::LoadStateDict(*net, OrThrow(checkpoint::GetDict(golden, "state_dict"))));
  Options options;
  options.device_ids = {-1, -1, -1};
  auto model = OrThrow(Wrap(net, options));
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor outputs = model(TensorAt(golden, {"steps", step, "inputs"}));
    ExpectClose(outputs, TensorAt(golden, {"steps", step, "outputs"}), "outputs");
    outputs.pow(2).mean().backward();
    for (const auto& parameter : net->named_parameters()) {
      const at::Tensor expected = TensorAt(golden, {"steps", step, "gradients", parameter.key()});
      ExpectClose(parameter.value().grad(), expected, parameter.key());
    }
    optimizer.step();
    for (const auto& buffer : net->named_buffers()) {
      ExpectClose(buffer.value(), TensorAt(golden, {"steps", step, "buffers", buffer.key()}), buffer.key());
    }
  }
}

}  // namespace
}  // namespace lockstep::dp
