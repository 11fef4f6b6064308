// The models under DistributedDataParallel and fully sharded. The reference is one rank with virtual ranks.

#include <ATen/ATen.h>

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/sharded_model.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/models/transformer/testing/tiny.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::models {
namespace {

using comm::ProcessGroup;
using Tensors = std::vector<at::Tensor>;

constexpr int kSteps = 2, kVirtualRanks = 3;

CausalLM Make(const CausalLMConfig& config) {
  CausalLM net(config);
  testing::Disturb(*net);
  net->set_recompute(true);
  return net;
}

template <typename Net>
void Backward(Net& net, int64_t step) {
  for (const int virtual_rank : net.VirtualRanks(step)) {
    at::Tensor loss;
    {
      const ddp::Autocast autocast(at::kCPU, at::kBFloat16);
      loss = NextTokenLoss(net(testing::Tokens(2, 9, step + 5 * virtual_rank)), testing::Tokens(2, 9, step));
    }
    loss.backward();
  }
}

optim::AdamWOptions Settings() { return optim::AdamWOptions(1e-2).fused(true); }

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

absl::StatusOr<Tensors> TrainReplicas(ProcessGroup& group, const CausalLMConfig& config) {
  ddp::Options options;
  options.virtual_ranks = kVirtualRanks;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Make(config), &group, options));
  optim::AdamW optimizer(net.parameters(), Settings());
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    Backward(net, step);
    optimizer.step();
  }
  return Copies(net.parameters());
}

absl::StatusOr<Tensors> TrainShards(ProcessGroup& group, const CausalLMConfig& config, fsdp::Residency residency) {
  fsdp::Options options;
  options.units = {config.is_gpt2() ? "transformer.h.*" : "model.layers.*"};
  options.virtual_ranks = kVirtualRanks;
  options.residency = residency;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, fsdp::Wrap(Make(config), &group, options));
  optim::AdamW optimizer(net.shards(), Settings());
  for (int64_t step = 0; step < kSteps; ++step) {
    Backward(net, step);
    LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  return Copies(net.parameters());
}

// The parameters of rank 0.
template <typename F>
Tensors OnRanks(int ranks, F train) {
  comm::InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  Tensors result;
  const auto statuses = comm::testing::InitRanks(options, ranks, [&](ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Tensors tensors, train(group));
    if (group.rank() == 0) result = tensors;
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return result;
}

void ExpectSame(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
}

TEST(CausalLMOnRanks, TrainsToTheSameBitsInReplicasAndInShards) {
  const std::vector<CausalLMConfig> configs = testing::TinyConfigs();
  for (const CausalLMConfig& config : {configs[0], configs[4]}) {
    const auto replicas = [&](ProcessGroup& group) { return TrainReplicas(group, config); };
    const Tensors expected = OnRanks(1, replicas);
    ASSERT_FALSE(expected.empty());
    EXPECT_FALSE(expected[0].equal(Make(config)->parameters()[0]));
    ExpectSame(OnRanks(2, replicas), expected);
    for (const fsdp::Residency residency : {fsdp::Residency::kAuto, fsdp::Residency::kPaged})
      ExpectSame(OnRanks(2, [&](ProcessGroup& group) { return TrainShards(group, config, residency); }), expected);
  }
}

TEST(CausalLMOnRanks, IsCutIntoPiecesThatAWorldKeeps) {
  auto model = elastic::ShardModel(Make(testing::TinyConfigs()[0]), {.units = {"transformer.h.*"}});
  ASSERT_TRUE(model.ok()) << model.status();
  int64_t elements = 0;
  for (const at::Tensor& piece : model->pieces()) elements += piece.numel();
  EXPECT_EQ(elements, ParameterCount(testing::TinyConfigs()[0]));
}

}  // namespace
}  // namespace lockstep::models
