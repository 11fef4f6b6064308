#include "lockstep/ddp/testing/training.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/optim/sgd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp::testing {

constexpr int kBranches = 4;

MlpImpl::MlpImpl(int64_t in, int64_t hidden, int64_t out)
    : first(register_module("first", torch::nn::Linear(in, hidden))),
      second(register_module("second", torch::nn::Linear(hidden, out))) {}

at::Tensor MlpImpl::forward(const at::Tensor& x) { return second(at::tanh(first(x))); }

Mlp SeededMlp(uint64_t seed, int64_t hidden) {
  Mlp net(4, hidden, 3);
  net->to(at::kDouble);
  // Ranks that are threads share the default generator.
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (at::Tensor& parameter : net->parameters()) parameter.uniform_(-0.5, 0.5, generator);
  return net;
}

BranchesImpl::BranchesImpl(int count) {
  for (int i = 0; i < count; ++i)
    weights.push_back(register_parameter(absl::StrCat("branch", i), at::arange(4, at::kDouble).sub(1.5).div(i + 2)));
}

at::Tensor BranchesImpl::forward(const at::Tensor& x, const Used& used) {
  at::Tensor sum;
  for (const int i : used) {
    const at::Tensor branch = at::tanh(at::matmul(x, weights[i]));
    sum = sum.defined() ? sum + branch : branch;
  }
  return sum;
}

at::Tensor Batch(int64_t rows, int64_t columns, int step) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(1000 + step), at::kDouble);
}

at::Tensor Share(const at::Tensor& batch, int rank, int ranks) { return batch.slice(0, rank, c10::nullopt, ranks); }

at::Tensor Share(const at::Tensor& batch, const comm::ProcessGroup& group) {
  return Share(batch, group.rank(), group.size());
}

void OnRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body) {
  EXPECT_EQ(comm::testing::RunRanksOk(ranks, body), absl::OkStatus());
}

std::vector<Options> EveryWay() {
  std::vector<Options> ways(6);
  ways[1].gradient_as_bucket_view = true;
  ways[2].find_unused_parameters = true;
  ways[3].static_graph = true;
  ways[4].find_unused_parameters = ways[4].skip_all_reduce_unused_params = true;
  for (Options& options : ways) options.bucket_cap_mb = 1e-6;
  ways[5] = Options();
  return ways;
}

std::vector<at::Tensor> Gradients(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters)
    gradients.push_back(parameter.grad().defined() ? parameter.grad().detach().clone() : at::Tensor());
  return gradients;
}

void ExpectClose(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].defined(), expected[i].defined()) << "tensor " << i;
    if (!actual[i].defined() || !expected[i].defined() || expected[i].numel() == 0) continue;
    const at::Tensor difference = (actual[i].detach().to(at::kDouble) - expected[i].detach().to(at::kDouble)).abs();
    const double most = difference.max().item<double>();
    EXPECT_TRUE(most <= tolerance) << "tensor " << i << " differs by " << most;  // false for NaN
  }
}

void ExpectSameBits(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                    const std::string& what) {
  const auto dense = [](const at::Tensor& tensor) {
    return (tensor.is_sparse() ? tensor.to_dense() : tensor).detach().contiguous().flatten();
  };
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << what << ", tensor " << i;
    if (!actual[i].defined()) continue;
    ASSERT_EQ(actual[i].dtype(), expected[i].dtype()) << what << ", tensor " << i;
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << what << ", tensor " << i;
    const at::Tensor found = dense(actual[i]), wanted = dense(expected[i]);
    const at::Tensor differ = found.view(at::kByte).ne(wanted.view(at::kByte)).nonzero();
    if (differ.numel() == 0) continue;
    const int64_t first = differ[0].item<int64_t>() / static_cast<int64_t>(found.itemsize());
    FAIL() << what << ", tensor " << i << ", element " << first << " of " << found.numel() << ": "
           << found[first].item<double>() << ", expected " << wanted[first].item<double>();
  }
}

void ExpectTrainsAsOneProcess(int ranks, const Options& options, bool set_to_none, const Plan& plan, int steps) {
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9);
  Branches reference(kBranches);
  torch::optim::SGD reference_optimizer(reference->parameters(), sgd);
  std::vector<std::vector<at::Tensor>> gradients;
  for (int step = 0; step < steps; ++step) {
    reference_optimizer.zero_grad(set_to_none);
    for (int rank = 0; rank < ranks; ++rank)
      reference(Share(Batch(12, 4, step), rank, ranks), plan(rank, step)).mean().div(ranks).backward();
    gradients.push_back(Gradients(reference->parameters()));
    reference_optimizer.step();
  }
  OnRanks(ranks, [&](comm::ProcessGroup& group) {
    auto ddp = Wrapped(Branches(kBranches), group, options);
    torch::optim::SGD optimizer(ddp.parameters(), sgd);
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE(absl::StrCat("rank ", group.rank(), " step ", step));
      optimizer.zero_grad(set_to_none);
      ddp(Share(Batch(12, 4, step), group), plan(group.rank(), step)).mean().backward();
      ExpectClose(Gradients(ddp.parameters()), gradients[step]);
      optimizer.step();
    }
    ExpectClose(ddp.parameters(), reference->parameters());
  });
}

}  // namespace lockstep::ddp::testing
