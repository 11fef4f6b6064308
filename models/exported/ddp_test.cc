// Programs on several ranks: ZeRO's optimizer, and what cannot be converted. testing/elastic_test.cc has virtual ranks
// and elastic training, peer/ Python's DistributedDataParallel.

#include <ATen/ATen.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/sync_batch_norm/convert_sync_batch_norm.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/models/exported/exported_module.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::models::exported {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

constexpr char kNet[] = "models/exported/testdata/net.pt2";  // with batch normalisation and a tied weight

// Trains with a batch of each rank and step.
void Train(const ExportedModule& net, torch::optim::Optimizer& optimizer, ProcessGroup& group) {
  auto ddp = ddp::Wrap(net, &group);
  ThrowIfError(ddp.status());
  for (int step = 0; step < 4; ++step) {
    const at::Tensor rows = at::arange(24, at::kDouble).add(3.1 * step + 7.7 * group.rank()).sin().view({6, 4});
    optimizer.zero_grad();
    const c10::IValue output = (*ddp)(rows, at::ones({4}, at::kDouble));
    (output.toGenericDict().at("logits").toTensor().square().sum() +
     output.toGenericDict().at("parts").toTensorVector()[1].sum())
        .backward();
    optimizer.step();
  }
}

TEST(ExportedZero, StepsAsThePlainOptimizer) {
  using Adam = ddp::zero::ZeroRedundancyOptimizer<optim::AdamW>;
  const checkpoint::Value before = checkpoint::StateDict(**Load(kNet));
  EXPECT_EQ(RunRanksOk(3,
                       [&](ProcessGroup& group) {
                         const ExportedModule plain = *Load(kNet), sharded = *Load(kNet);
                         optim::AdamW adam(plain->parameters(), optim::AdamWOptions(0.01));
                         Train(plain, adam, group);
                         const auto zero = Adam::Create(sharded->parameters(), optim::AdamWOptions(0.01), &group);
                         ThrowIfError(zero.status());
                         Train(sharded, **zero, group);
                         EXPECT_TRUE(Identical(checkpoint::StateDict(*plain), checkpoint::StateDict(*sharded)));
                         EXPECT_FALSE(Identical(checkpoint::StateDict(*plain), before));
                       }),
            absl::OkStatus());
}

TEST(ExportedSyncBatchNorm, IsRefusedWithTheNamesOfTheLayers) {
  const auto error = [](torch::nn::Module& module) { return ddp::ConvertSyncBatchNorm(module, nullptr).status(); };
  const std::string reason =
      "ConvertSyncBatchNorm: these batch normalisations are operators of a program that Python exported, so they "
      "cannot be replaced, and nothing changed: ";
  const std::string advice = "; before the export, use another normalisation in Python, such as GroupNorm";
  ExportedModule net = *Load(kNet);
  EXPECT_EQ(error(*net), absl::FailedPreconditionError(reason + "norm" + advice));
  torch::nn::Module parent;
  parent.register_module("program", net.ptr());
  EXPECT_EQ(error(parent), absl::FailedPreconditionError(reason + "program.norm" + advice));
  LoadOptions options;
  options.program = "train";  // without batch normalisation
  const absl::StatusOr<int> none =
      ddp::ConvertSyncBatchNorm(**Load("models/exported/testdata/programs.pt2", options), nullptr);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, 0);
}

}  // namespace
}  // namespace lockstep::models::exported
