// ZeRO with mixed precision and gradient clipping: Adam's state is divided among the ranks, forward and backward
// compute in 16 bits, and the gradients are clipped by their norm.
//
//   bazel run //examples/recipes:zero_amp
//
// Claim: the parameters end with the bits of plain Adam, and each rank keeps a part of Adam's state. It prints
//
//   zero_amp: BFloat16: 2 ranks ended with plain Adam's bits; rank 0 keeps 8320 of 16640 numbers; 20 of 20 steps
//   clipped
//   zero_amp: Half: 2 ranks ended with plain Adam's bits; rank 0 keeps 8320 of 16640 numbers; 20 of 20 steps
//   clipped

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

using ZeroAdam = ddp::zero::ZeroRedundancyOptimizer<torch::optim::Adam>;
using Net = ddp::DistributedDataParallel<torch::nn::Sequential>;

constexpr int kSteps = 20;
constexpr double kMaxNorm = 0.01;

absl::StatusOr<Net> MakeNet(comm::ProcessGroup& group) {
  torch::manual_seed(1);
  return ddp::Wrap(torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64)),
                   &group);
}

// Returns the number of steps whose gradients were clipped.
absl::StatusOr<int> Train(comm::ProcessGroup& group, Net& net, torch::optim::Optimizer& optimizer,
                          at::ScalarType dtype) {
  ddp::GradScalerOptions options;
  options.enabled = dtype == at::kHalf;  // bfloat16 has float's range, so small gradients do not become zero
  options.init_scale = 1024;
  LOCKSTEP_ASSIGN_OR_RETURN(ddp::GradScaler scaler, ddp::GradScaler::Create(options));
  at::Generator own = at::detail::createCPUGenerator(100 + group.rank());  // this rank's samples
  int clipped = 0;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor inputs = at::randn({16, 64}, own);
    optimizer.zero_grad();
    const at::Tensor loss = [&] {
      const ddp::Autocast autocast(at::kCPU, dtype);  // for forward and loss; backward follows their dtypes
      return torch::nn::functional::mse_loss(net(inputs).to(at::kFloat), inputs);
    }();
    scaler.Scale(loss).backward();
    LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));  // clipping needs the true gradients
    LOCKSTEP_ASSIGN_OR_RETURN(const double norm, ddp::ClipGradNorm(group, net.parameters(), kMaxNorm));
    clipped += norm > kMaxNorm;
    LOCKSTEP_RETURN_IF_ERROR(scaler.Step(optimizer).status());
    LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
  }
  return clipped;
}

int64_t StateSize(const torch::optim::Optimizer& optimizer) {
  int64_t size = 0;
  for (const auto& [parameter, state] : optimizer.state())
    size += 2 * static_cast<const torch::optim::AdamParamState&>(*state).exp_avg().numel();
  return size;
}

absl::Status Compare(comm::ProcessGroup& group, at::ScalarType dtype) {
  const torch::optim::AdamOptions adam(/*lr=*/0.02);
  LOCKSTEP_ASSIGN_OR_RETURN(Net net, MakeNet(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto optimizer, ZeroAdam::Create(net.parameters(), adam, &group));
  LOCKSTEP_ASSIGN_OR_RETURN(const int clipped, Train(group, net, *optimizer, dtype));

  LOCKSTEP_ASSIGN_OR_RETURN(Net plain_net, MakeNet(group));
  torch::optim::Adam plain(plain_net.parameters(), adam);
  LOCKSTEP_RETURN_IF_ERROR(Train(group, plain_net, plain, dtype).status());

  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(net.parameters(), group));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("the difference from plain Adam", MaxDifference(net.parameters(), plain_net.parameters()), 0, 0));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the number of clipped steps", clipped, 1, kSteps));
  const int64_t own = StateSize(*optimizer), whole = StateSize(plain);
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the size of this rank's state", own, 0, whole - 1));
  Say(group, absl::StrCat("zero_amp: ", at::toString(dtype), ": ", group.size(),
                          " ranks ended with plain Adam's bits; rank 0 keeps ", own, " of ", whole, " numbers; ",
                          clipped, " of ", kSteps, " steps clipped"));
  return absl::OkStatus();
}

absl::Status Run(comm::ProcessGroup& group) {
  LOCKSTEP_RETURN_IF_ERROR(Compare(group, at::kBFloat16));
  return Compare(group, at::kHalf);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: ZeRO with mixed precision and gradient clipping.", /*ranks=*/2, Run);
}
