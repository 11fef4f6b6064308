// Fully sharded training in half precision, with ddp::GradScaler.

#include "lockstep/ddp/amp/grad_scaler.h"

#include <torch/torch.h>

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using testing::OnRanks;
using testing::Setting;

constexpr int kVirtualRanks = 4, kSteps = 8;

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<bool> stepped;
  double scale = 0;
};

absl::StatusOr<Trained> Train(comm::ProcessGroup& group, Options options, bool fused) {
  options.virtual_ranks = kVirtualRanks;
  options.unit_bytes = 1000;
  options.mixed_precision = MixedPrecision{at::kHalf, at::kFloat};
  torch::nn::Sequential mlp(torch::nn::Linear(8, 33), torch::nn::ReLU(), torch::nn::Linear(33, 3));
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : mlp->parameters())
      parameter.copy_(at::arange(parameter.numel(), at::kFloat).sin().mul(0.3).view(parameter.sizes()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(mlp, &group, options));
  optim::AdamW optimizer(net.shards(), optim::AdamWOptions(0.01).fused(fused));
  ddp::GradScalerOptions scaling;
  scaling.init_scale = 1 << 20;
  scaling.growth_interval = 3;
  scaling.group = &group;
  LOCKSTEP_ASSIGN_OR_RETURN(ddp::GradScaler scaler, ddp::GradScaler::Create(scaling));
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    for (const int v : net.VirtualRanks(step)) {
      const at::Tensor loss = net(at::arange(16.0).mul(step + v + 1).sin().view({2, 8})).to(at::kFloat).square().mean();
      scaler.Scale(loss).backward();
    }
    LOCKSTEP_RETURN_IF_ERROR(net.PrepareGradients());
    LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));
    LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(0.1).status());
    absl::StatusOr<bool> stepped;
    LOCKSTEP_RETURN_IF_ERROR(net.Step([&] { stepped = scaler.Step(optimizer); }));
    LOCKSTEP_RETURN_IF_ERROR(stepped.status());
    LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
    trained.stepped.push_back(*stepped);
  }
  trained.scale = scaler.GetScale();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  for (const at::Tensor& parameter : net.parameters()) trained.parameters.push_back(parameter.detach().clone());
  return trained;
}

class GradScaler : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Fsdp, GradScaler, testing::AllSettings(), testing::NameOf);

// A gradient that overflows is in the shards of one rank.
TEST_P(GradScaler, SkipsTheSameStepsOnAnyNumberOfRanks) {
  for (const bool fused : {false, true}) {
    Trained expected;
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(ranks);
      std::vector<Trained> found(ranks);
      const auto statuses = OnRanks(ranks, GetParam().backend, [&](comm::ProcessGroup& group) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(found[group.rank()], Train(group, GetParam().options(), fused));
        return group.Barrier();
      });
      for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
      if (ranks == 1) expected = found[0];
      for (const Trained& of_rank : found) {
        EXPECT_EQ(of_rank.stepped, expected.stepped);
        EXPECT_EQ(of_rank.scale, expected.scale);
        ASSERT_EQ(of_rank.parameters.size(), expected.parameters.size());
        for (size_t i = 0; i < expected.parameters.size(); ++i)
          EXPECT_TRUE(of_rank.parameters[i].equal(expected.parameters[i])) << i;
      }
    }
    EXPECT_FALSE(expected.stepped.front()) << "with this scale a gradient is infinite";
    EXPECT_TRUE(expected.stepped.back());
  }
}

}  // namespace
}  // namespace lockstep::fsdp
