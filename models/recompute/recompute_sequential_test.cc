#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/recompute/recompute.h"
#include "lockstep/models/recompute/testing/functions.h"
#include "lockstep/models/recompute/testing/same_bits.h"

namespace lockstep::models {
namespace {

using testing::ExpectSameBits;
using testing::Input;
using testing::Tensors;

TEST(RecomputeSequential, RecomputesAllSegmentsButTheLast) {
  for (const int segments : {1, 2, 3, 5}) {
    std::vector<int> calls(5);
    std::vector<std::function<at::Tensor(const at::Tensor&)>> functions;
    for (int i = 0; i < 5; ++i) {
      functions.emplace_back([&calls, i](const at::Tensor& x) {
        ++calls[i];
        return (x * (i + 1)).sin();
      });
    }
    const at::Tensor x = Input({4}, 1).requires_grad_(), plain = Input({4}, 1).requires_grad_();
    const at::Tensor output = RecomputeSequential(functions, segments, x);
    output.sum().backward();
    at::Tensor expected = plain;
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(calls[i], i < 5 / segments * (segments - 1) ? 2 : 1) << i << " of " << segments;
      expected = (expected * (i + 1)).sin();
    }
    expected.sum().backward();
    ExpectSameBits({output, x.grad()}, {expected, plain.grad()});
  }
}

TEST(RecomputeSequential, TakesModulesWithBuffers) {
  const auto trained = [](bool recompute) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.4),
                              torch::nn::Linear(8, 3), torch::nn::BatchNorm1d(3));
    const at::Tensor x = Input({4, 6}, 5);
    const at::Tensor output = recompute ? RecomputeSequential(net, 2, x) : net->forward(x);
    output.square().sum().backward();
    Tensors all = {output};
    for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
    for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
    return all;
  };
  ExpectSameBits(trained(true), trained(false));
}

TEST(RecomputeSequential, AWrongNumberOfSegmentsIsAnError) {
  const torch::nn::Sequential net(torch::nn::Linear(2, 2));
  for (const int segments : {0, 2}) {
    const absl::Status status = TorchStatus("", [&] { RecomputeSequential(net, segments, Input({2, 2}, 1)); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "recompute: expected segments from 1 to the number of functions, 1; found " + std::to_string(segments));
  }
}

}  // namespace
}  // namespace lockstep::models
