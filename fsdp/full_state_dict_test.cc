#include "lockstep/fsdp/full_state_dict.h"

#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/safetensors/model.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/small_net.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using checkpoint::Value;
using checkpoint::testing::Folder;
using testing::Copies;
using ::testing::HasSubstr;
using testing::MakeOptimizer;
using testing::OnRanks;
using testing::OptimizerKind;
using testing::SmallNet;
using testing::Tensors;

Value File(const Value& model, const Value& optimizer) {
  return Value::Dict({{"epoch", 3}, {"state_dict", model}, {"optimizer", optimizer}});
}

// A run: steps [first, last), after loading `from`, and before saving `to`.
struct Training {
  int first = 0, last = 0;
  std::string from, to;
};

Tensors Trained(const Tensors& parameters) {
  Tensors trained;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

template <typename Handle, typename Step>
absl::Status Steps(Handle& net, const Training& run, const Step& step) {
  for (int i = run.first; i < run.last; ++i) {
    for (const int v : net.VirtualRanks(i)) net(testing::Tokens(i, v)).square().mean().backward();
    LOCKSTEP_RETURN_IF_ERROR(step());
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> TrainSharded(comm::ProcessGroup& group, OptimizerKind kind, Options options,
                                     const Training& run) {
  options.virtual_ranks = testing::kVirtualRanks;
  SmallNet module = testing::MakeNet(0, /*channels_last=*/true);
  if (!run.from.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value model, checkpoint::LoadEntry(run.from, "state_dict"));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*module, model));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(module, &group, options));
  const auto optimizer = MakeOptimizer(kind, net.shards());
  if (!run.from.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(LoadFullOptimizerStateDict(run.from, "optimizer", net, *optimizer));
  }
  LOCKSTEP_RETURN_IF_ERROR(Steps(net, run, [&] { return net.Step(*optimizer); }));
  if (!run.to.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(SaveFullStateDict(run.to, net, *optimizer, File));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  if (!run.to.empty() && group.rank() == 0)
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSafetensorsModel(run.to + ".st", *net.module()));
  return Copies(net.parameters());
}

// `all`: the optimizer gets frozen parameters too.
absl::StatusOr<Tensors> TrainReplicated(comm::ProcessGroup& group, OptimizerKind kind, bool all, const Training& run) {
  ddp::Options options;
  options.virtual_ranks = testing::kVirtualRanks;
  options.find_unused_parameters = true;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(testing::MakeNet(0, /*channels_last=*/true), &group, options));
  const Tensors& parameters = net.parameters();
  const auto optimizer = MakeOptimizer(kind, all ? parameters : Trained(parameters));
  if (!run.from.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(run.from));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net.module(), *file.Find("state_dict")));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(*optimizer, *file.Find("optimizer")));
  }
  LOCKSTEP_RETURN_IF_ERROR(Steps(net, run, [&] {
    optimizer->step();
    optimizer->zero_grad();
    return absl::OkStatus();
  }));
  if (!run.to.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value state, checkpoint::OptimizerStateDict(*optimizer));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(run.to, File(checkpoint::StateDict(*net.module()), state)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSafetensorsModel(run.to + ".st", *net.module()));
  }
  return Copies(net.parameters());
}

void ExpectEqual(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "tensor " << i;
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdamW, OptimizerKind::kNAdam, OptimizerKind::kFusedSgd};

TEST(FullStateDict, AnyNumberOfRanksWritesTheFileOfDistributedDataParallel) {
  for (const OptimizerKind kind : kKinds) {
    const Folder folder;
    const Training run{0, 3, "", folder.path() + "/last.pt"};
    OnRanks(1, [&](comm::ProcessGroup& group) { return TrainReplicated(group, kind, /*all=*/false, run); });
    const std::string expected = folder.Read("last.pt"), safetensors = folder.Read("last.pt.st");
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(ranks);
      folder.Write("last.pt", "");
      Options options;
      if (ranks > 2) options.residency = Residency::kPaged;
      options.unit_bytes = ranks == 3 ? 1 : 5000;
      OnRanks(ranks, [&](comm::ProcessGroup& group) { return TrainSharded(group, kind, options, run); });
      EXPECT_TRUE(folder.Read("last.pt") == expected);
      EXPECT_TRUE(folder.Read("last.pt.st") == safetensors);
    }
  }
}

TEST(FullStateDict, TrainingGoesOnWithOrWithoutShards) {
  for (const OptimizerKind kind : kKinds) {
    const Folder folder;
    const auto replicated = [&](bool all, const Training& run) {
      return OnRanks(1, [&](comm::ProcessGroup& group) { return TrainReplicated(group, kind, all, run); })[0];
    };
    const auto sharded = [&](int ranks, const Training& run) {
      return OnRanks(ranks, [&](comm::ProcessGroup& group) { return TrainSharded(group, kind, {}, run); })[0];
    };
    const Tensors expected = replicated(false, {0, 6, "", ""});
    sharded(2, {0, 3, "", folder.path() + "/sharded.pt"});
    ExpectEqual(replicated(false, {3, 6, folder.path() + "/sharded.pt", ""}), expected);
    ExpectEqual(sharded(3, {3, 6, folder.path() + "/sharded.pt", ""}), expected);
    replicated(true, {0, 3, "", folder.path() + "/all.pt"});
    ExpectEqual(sharded(2, {3, 6, folder.path() + "/all.pt", ""}), expected);
  }
}

// The error that both of two ranks get of `test`.
std::string ErrorOf(const std::function<absl::Status(FullyShardedDataParallel<SmallNet>&, optim::AdamW&)>& test) {
  comm::InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  const auto statuses = comm::testing::InitRanks(options, 2, [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::MakeNet(0, true), &group));
    optim::AdamW optimizer(net.shards());
    net(testing::Tokens(0, 0)).square().mean().backward();
    LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
    const absl::Status status = test(net, optimizer);
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // the group has not failed
    return status;
  });
  EXPECT_EQ(statuses[0], statuses[1]);
  return std::string(statuses[0].message());
}

TEST(FullStateDictErrors, AFileThatCannotBeWrittenIsAnErrorOfAllRanks) {
  const Folder folder;
  const std::string path = folder.path() + "/none/last.pt";
  EXPECT_THAT(ErrorOf([&](auto& net, auto& optimizer) { return SaveFullStateDict(path, net, optimizer, File); }),
              HasSubstr("rank 0"));
  EXPECT_THAT(ErrorOf([&](auto& net, auto& optimizer) {
                return SaveFullStateDict(folder.path() + "/last.pt", net, optimizer,
                                         [](const Value&, const Value&) -> Value { throw std::runtime_error("no"); });
              }),
              HasSubstr("no"));
}

TEST(FullStateDictErrors, AStateDictThatDoesNotFitIsNamed) {
  const Folder folder;
  const std::string path = folder.path() + "/last.pt";
  EXPECT_THAT(ErrorOf([&](auto& net, auto& optimizer) {
                return LoadFullOptimizerStateDict(path, "optimizer", net, optimizer);
              }),
              HasSubstr("last.pt"));
  const auto load = [&](Value state, Value group) {
    return ErrorOf([&](auto& net, auto& optimizer) {
      return LoadFullOptimizerStateDict(Value::Dict({{"state", state}, {"param_groups", Value::List({group})}}), net,
                                        optimizer);
    });
  };
  EXPECT_THAT(load(Value::Dict(), Value::Dict({{"params", Value::List({0, 1})}})),
              HasSubstr("param_groups[0][\"params\"]: expected 12 parameters, found 2"));
  EXPECT_THAT(load(Value::Dict(), Value::Dict({{"params", Value::List({"tied"})}})),
              HasSubstr("param_groups[0][\"params\"]: expected "));
  Value numbers = Value::List(), states = Value::Dict();
  for (int i = 0; i < 12; ++i) {
    numbers.Append(i);
    states.Set(i, Value::Dict({{"step", at::ones({})}, {"exp_avg", at::ones({4, 5})}}));
  }
  EXPECT_THAT(load(states, Value::Dict({{"params", numbers}})), HasSubstr("expected a number or a tensor ["));
}

}  // namespace
}  // namespace lockstep::fsdp
