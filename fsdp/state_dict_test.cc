#include "lockstep/fsdp/state_dict.h"

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/sharded/load_whole.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/small_net.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using checkpoint::testing::Folder;
using testing::Copies;
using ::testing::HasSubstr;
using testing::MakeOptimizer;
using testing::OnRanks;
using testing::OptimizerKind;
using testing::SmallNet;
using testing::Tensors;

// A run: steps [first, last), after loading `from`, and before saving `to`.
struct Training {
  int first = 0, last = 0;
  std::string from, to;
  StateDictOptions state;
};

absl::StatusOr<Tensors> Train(comm::ProcessGroup& group, OptimizerKind kind, Options options, const Training& run) {
  options.virtual_ranks = testing::kVirtualRanks;
  const bool channels_last = options.shard == Shard::kElements;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::MakeNet(run.from.empty() ? 0 : 5, channels_last), &group, options));
  const auto optimizer = MakeOptimizer(kind, net.shards());
  if (!run.from.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(run.from, net, *optimizer, run.state));
  for (int step = run.first; step < run.last; ++step) {
    for (const int v : net.VirtualRanks(step)) net(testing::Tokens(step, v)).square().mean().backward();
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
  }
  if (!run.to.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::ShardedStateDict state, GetStateDict(net, *optimizer, run.state));
    state.push_back({"epoch", 3});
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(run.to, state, &group));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  Tensors all = Copies(net.parameters());
  for (const at::Tensor& buffer : net.module()->buffers()) all.push_back(buffer.clone());
  return all;
}

void ExpectEqual(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "tensor " << i;
}

TEST(StateDict, AnyNumberOfRanksContinuesWhatTwoSavedToTheBit) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kNAdam, OptimizerKind::kFusedSgd}) {
    const Folder folder;
    Options saved;
    saved.units = {"first"};
    const auto on = [&](int ranks, const Options& options, const Training& run) {
      return OnRanks(ranks, [&](comm::ProcessGroup& group) { return Train(group, kind, options, run); });
    };
    const Tensors expected = on(2, saved, {0, 6, "", "", {}})[0];
    on(2, saved, {0, 3, "", folder.path() + "/nested", {}});
    StateDictOptions flat;
    flat.flatten_optimizer_state_dict = true;
    flat.model = "";
    flat.optimizer = "optimizer";
    saved.residency = Residency::kPaged;
    on(2, saved, {0, 3, "", folder.path() + "/flat", flat});
    for (const int ranks : {1, 3, 4}) {
      SCOPED_TRACE(ranks);
      Options options;
      options.unit_bytes = 1000 * ranks;
      if (ranks == 4) options.residency = Residency::kPaged;
      // Fused optimizers round by an element's place, so rows have other bits.
      if (ranks == 3 && kind != OptimizerKind::kFusedSgd) options.shard = Shard::kRows;
      for (const Tensors& found : on(ranks, options, {3, 6, folder.path() + "/nested", "", {}})) {
        ExpectEqual(found, expected);
      }
      for (const Tensors& found : on(ranks, options, {3, 6, folder.path() + "/flat", "", flat})) {
        ExpectEqual(found, expected);
      }
    }
  }
}

// The parameters are copies of the shards that are loaded.
TEST(StateDict, ContinuesInMixedPrecision) {
  const Folder folder;
  const auto train = [&](comm::ProcessGroup& group, Options options, const Training& run) -> absl::StatusOr<Tensors> {
    options.virtual_ranks = testing::kVirtualRanks;
    options.mixed_precision.emplace();
    torch::nn::Linear module(31, 9);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) parameter.fill_(run.from.empty() ? 0.3 : 7);
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, options));
    const auto optimizer = MakeOptimizer(OptimizerKind::kFusedSgd, net.shards());
    if (!run.from.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(run.from, net, *optimizer));
    for (int step = run.first; step < run.last; ++step) {
      const torch::AutoGradMode grad(true);
      for (const int v : net.VirtualRanks(step)) net(at::arange(31.0).mul(step + v).sin()).square().mean().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
    }
    if (run.to.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
      return Copies(net.parameters());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto state, GetStateDict(net, *optimizer));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(run.to, state, &group));
    return Tensors();
  };
  for (const Residency residency : {Residency::kSharedPages, Residency::kPaged}) {
    Options options;
    options.residency = residency;
    const auto on = [&](int ranks, const Training& run) {
      return OnRanks(ranks, [&](comm::ProcessGroup& group) { return train(group, options, run); });
    };
    const std::string path = folder.path() + (residency == Residency::kPaged ? "/paged" : "/shared");
    const Tensors expected = on(2, {0, 20, "", "", {}})[0];
    on(2, {0, 10, "", path, {}});
    const auto saved = checkpoint::LoadWhole(path);
    ASSERT_EQ(saved.status(), absl::OkStatus());
    EXPECT_EQ(checkpoint::GetTensor(*saved, {"model", "weight"})->scalar_type(), at::kFloat);
    for (const Tensors& found : on(3, {10, 20, path, "", {}})) ExpectEqual(found, expected);
  }
}

TEST(StateDict, HasTheNamesAndShapesOfPython) {
  const Folder folder;
  OnRanks(2, [&](comm::ProcessGroup& group) {
    return Train(group, OptimizerKind::kAdamW, {}, {0, 1, "", folder.path() + "/saved", {}});
  });
  const absl::StatusOr<checkpoint::Value> whole = checkpoint::LoadWhole(folder.path() + "/saved");
  ASSERT_EQ(whole.status(), absl::OkStatus());
  EXPECT_EQ(*checkpoint::GetInt(*whole, "epoch"), 3);
  const auto model = checkpoint::GetDict(*whole, "model");
  ASSERT_EQ(model.status(), absl::OkStatus());
  for (const char* name : {"tied", "embedding.weight", "frozen.weight", "norm.running_mean", "scale"}) {
    EXPECT_TRUE(model->Find(name)) << name;
  }
  const auto state = checkpoint::GetDict(*whole, {"optim", "state"});
  ASSERT_EQ(state.status(), absl::OkStatus());
  EXPECT_FALSE(state->Find("frozen.weight"));
  EXPECT_FALSE(state->Find("unused.weight"));
  EXPECT_FALSE(state->Find("tied") && state->Find("embedding.weight"));
  EXPECT_EQ(checkpoint::GetTensor(*state, {"convolution.weight", "exp_avg"})->sizes(), at::IntArrayRef({5, 1, 3, 3}));
  EXPECT_EQ(checkpoint::GetTensor(*state, {"scale", "exp_avg"})->dim(), 0);
  EXPECT_EQ(checkpoint::GetTensor(*state, {"scale", "step"})->item<float>(), 1);
  const auto names = checkpoint::GetItems(*whole, {"optim", "param_groups", 0, "params"});
  ASSERT_EQ(names.status(), absl::OkStatus());
  const torch::OrderedDict<std::string, at::Tensor> parameters = testing::MakeNet(0, true)->named_parameters();
  size_t next = 0;
  for (const auto& item : parameters) {
    if (item.key() == "frozen.weight" || item.key() == "frozen.bias" || item.key() == "embedding.weight") continue;
    ASSERT_LT(next, names->size());
    EXPECT_EQ((*names)[next++].string_value(), item.key());
  }
  EXPECT_EQ(next, names->size());
}

// The error that all of two ranks get of `test`.
std::string ErrorOf(const std::function<absl::Status(comm::ProcessGroup&, FullyShardedDataParallel<SmallNet>&)>& test) {
  comm::InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  const auto statuses = comm::testing::InitRanks(options, 2, [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::MakeNet(0, true), &group));
    return test(group, net);
  });
  EXPECT_EQ(statuses[0], statuses[1]);
  return std::string(statuses[0].message());
}

absl::Status Step(FullyShardedDataParallel<SmallNet>& net, torch::optim::Optimizer& optimizer) {
  net(testing::Tokens(0, 0)).square().mean().backward();
  return net.Step(optimizer);
}

TEST(StateDictErrors, AnOptimizerThatIsNotOverTheShardsIsNamed) {
  EXPECT_THAT(ErrorOf([](comm::ProcessGroup&, auto& net) {
                const optim::AdamW optimizer(net.parameters());
                return GetStateDict(net, optimizer).status();
              }),
              HasSubstr("param_groups[0][\"params\"][0] is not one of shards(); make the optimizer of shards()"));
}

TEST(StateDictErrors, AShardOrAStateThatOneRankLacksIsNamed) {
  EXPECT_THAT(ErrorOf([](comm::ProcessGroup& group, auto& net) {
                Tensors shards;
                for (size_t i = 0; i < net.shards().size(); ++i) {
                  if (group.rank() == 0 || net.shard_names()[i] != "first.weight") shards.push_back(net.shards()[i]);
                }
                const optim::AdamW optimizer(shards);
                return GetStateDict(net, optimizer).status();
              }),
              HasSubstr("rank 1's optimizer does not have its shard of first.weight, expected it, as rank 0's"));
  EXPECT_THAT(ErrorOf([](comm::ProcessGroup& group, auto& net) -> absl::Status {
                optim::AdamW optimizer(net.shards());
                LOCKSTEP_RETURN_IF_ERROR(Step(net, optimizer));
                if (group.rank() == 1) optimizer.state().clear();
                return GetStateDict(net, optimizer).status();
              }),
              HasSubstr("rank 1's optimizer has nothing as state of first.weight, expected dict, as rank 0's"));
  EXPECT_THAT(ErrorOf([](comm::ProcessGroup& group, auto& net) {
                const optim::AdamW optimizer(net.shards(), optim::AdamWOptions(0.1 + group.rank()));
                return GetStateDict(net, optimizer).status();
              }),
              HasSubstr("rank 1's optimizer has 1.1 as param_groups[0][\"lr\"], expected 0.1, as rank 0's"));
}

// Saves, changes what `damage` names, and returns the error of loading it.
std::string LoadError(const std::function<void(checkpoint::ShardedStateDict&)>& damage, bool two_groups = false) {
  const Folder folder;
  return ErrorOf([&](comm::ProcessGroup& group, auto& net) -> absl::Status {
    optim::AdamW optimizer(net.shards());
    LOCKSTEP_RETURN_IF_ERROR(Step(net, optimizer));
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::ShardedStateDict state, GetStateDict(net, optimizer));
    damage(state);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(folder.path(), state, &group));
    if (!two_groups) return LoadStateDict(folder.path(), net, optimizer);
    Tensors first, others;
    for (size_t i = 0; i < net.shards().size(); ++i) {
      (net.shard_names()[i] == "first.weight" ? first : others).push_back(net.shards()[i]);
    }
    optim::AdamW other({torch::optim::OptimizerParamGroup(first), torch::optim::OptimizerParamGroup(others)});
    return LoadStateDict(folder.path(), net, other);
  });
}

void Remove(checkpoint::ShardedStateDict& state, const std::string& part) {
  state.erase(std::remove_if(state.begin(), state.end(),
                             [&](const auto& entry) { return entry.name().find(part) != std::string::npos; }),
              state.end());
}

TEST(StateDictErrors, WhatACheckpointLacksIsNamed) {
  EXPECT_THAT(LoadError([](auto& state) { Remove(state, "optim"); }),
              HasSubstr("expected the state dict of an optimizer, found no \"optim.param_groups.\""));
  EXPECT_THAT(LoadError([](auto& state) { Remove(state, "state.first.weight.exp_avg_sq"); }),
              HasSubstr("[\"state\"][\"first.weight\"]"));
  EXPECT_THAT(LoadError([](auto& state) { Remove(state, "model.first.weight"); }),
              HasSubstr("item \"model.first.weight\": the checkpoint has none of this name"));
  EXPECT_THAT(LoadError([](auto& state) {
                for (auto& entry : state) {
                  if (entry.name() == "optim.param_groups.0.params") entry.value = checkpoint::Value::List({"scale"});
                }
              }),
              HasSubstr("expected it in the checkpoint's param_groups[0], as in the optimizer, found none"));
  EXPECT_THAT(LoadError([](auto& state) {
                Remove(state, "optim.state.scale.exp_avg");
                Remove(state, "optim.state.last.bias.exp_avg");
                state.push_back({"optim.state.last.bias.exp_avg", at::ones({2, 3})});
              }),
              HasSubstr("the state exp_avg of last.bias: expected a number or a tensor [37], found [2, 3]"));
  EXPECT_THAT(LoadError([](auto&) {}, /*two_groups=*/true),
              HasSubstr("expected 2 param_groups, as the optimizer has, found 1"));
}

}  // namespace
}  // namespace lockstep::fsdp
