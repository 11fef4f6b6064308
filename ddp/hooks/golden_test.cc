// The hooks beside those of Python PyTorch 2.11 (testdata/make_golden.py), on two ranks.

#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/hooks/power_sgd.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

at::Tensor Golden(const std::string& name) {
  static const nlohmann::json golden =
      nlohmann::json::parse(std::ifstream("ddp/hooks/testdata/golden.json"));  // read on the test's own thread
  return torch::tensor(golden.at(name).get<std::vector<double>>(), at::kDouble).to(at::kFloat);
}

// The Bucket of make_golden.py.
GradBucket Bucket(int rank, int step) {
  std::vector<at::Tensor> gradients;
  int k = 0;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{8, 9}, {6}, {7, 10}, {8, 9}}) {
    const at::Tensor gradient = at::zeros(shape);
    for (int64_t i = 0; i < gradient.numel(); ++i, ++k)
      gradient.data_ptr<float>()[i] = static_cast<float>(std::sin(0.7 * ((k + 1) * (k + 1) % 101) + rank + 2 * step));
    gradients.push_back(gradient);
  }
  return MakeBucket(gradients);
}

void ExpectSameBits(const std::string& name, CommunicationHook (*make)(ProcessGroup* group)) {
  const at::Tensor expected = Golden(name);
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         EXPECT_TRUE(Reduce(make(&group), Bucket(group.rank(), 0)).equal(expected)) << name;
                       }),
            absl::OkStatus());
}

TEST(Golden, DefaultHooksAreTheSameBits) {
  ExpectSameBits("all-reduce", AllReduce);
  ExpectSameBits("fp16", Fp16Compress);
  ExpectSameBits("bf16", Bf16Compress);
}

// Factors come from other orders of operations, so the last bits differ.
void ExpectClose(const std::string& name, PowerSgdOptions options) {
  const at::Tensor expected = Golden(name);
  options.start_power_sgd_iter = 2;
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const CommunicationHook hook = *PowerSgd(&group, options);
                         at::Tensor reduced;
                         for (int step = 0; step < 5; ++step) reduced = Reduce(hook, Bucket(group.rank(), step));
                         EXPECT_LT((reduced - expected).abs().max().item<double>(), 1e-5) << name;
                       }),
            absl::OkStatus());
}

TEST(Golden, PowerSgdGivesTheSameGradients) {
  PowerSgdOptions options;
  ExpectClose("rank 1", options);
  options.matrix_approximation_rank = 2;
  ExpectClose("rank 2", options);
  options.warm_start = false;
  options.random_seed = 5;
  ExpectClose("cold", options);
  options = {};
  options.use_error_feedback = false;
  options.orthogonalization_epsilon = 0.01;
  ExpectClose("no feedback", options);
}

}  // namespace
}  // namespace lockstep::ddp::hooks
