#include "lockstep/fsdp/testing/small_net.h"

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp::testing {

SmallNetImpl::SmallNetImpl() {
  for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  tied = register_parameter("tied", embedding->weight);
}

at::Tensor SmallNetImpl::forward(const at::Tensor& tokens) {
  at::Tensor x = embedding(tokens) * scale;           // n x 7 x 37
  x = norm(at::relu(frozen(first(x))).unsqueeze(1));  // n x 1 x 7 x 23
  return at::linear(last(convolution(x).mean({2, 3})), tied);
}

SmallNet MakeNet(int seed, bool channels_last) {
  SmallNet net;
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).add(parameter.numel() + seed);
    at::Tensor(parameter).copy_(numbers.mul(12.9898).sin().mul(0.2).view(parameter.sizes()));
  }
  if (channels_last) {
    net->convolution->weight.set_data(net->convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  return net;
}

at::Tensor Tokens(int step, int virtual_rank) {
  return at::arange(3 * 7, at::kLong).mul(step + 3).add(virtual_rank * 5).remainder(19).view({3, 7});
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(OptimizerKind kind, const Tensors& parameters) {
  if (kind == OptimizerKind::kFusedSgd) {
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9).fused(true));
  }
  if (kind == OptimizerKind::kNAdam) return std::make_unique<optim::NAdam>(parameters, optim::NAdamOptions(0.01));
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01).amsgrad(true));
}

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

std::vector<Tensors> OnRanks(int ranks, const std::function<absl::StatusOr<Tensors>(comm::ProcessGroup&)>& train) {
  std::vector<Tensors> results(ranks);
  comm::InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(30);
  const auto statuses = comm::testing::InitRanks(options, ranks, [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(results[group.rank()], train(group));
    return group.Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return results;
}

}  // namespace lockstep::fsdp::testing
