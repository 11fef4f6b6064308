// A communication hook: PowerSGD sends each gradient as the product of two thin matrices.
//
//   bazel run //examples/recipes:power_sgd
//
// Claim: the ranks exchange 32 times fewer numbers, and the loss falls from 1 to less than 0.001, as it does with
// plain all-reduces. It prints
//
//   power_sgd: 2 ranks exchanged 32 times fewer numbers; loss 2e-14 instead of 2e-14

#include "lockstep/ddp/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

constexpr int kSteps = 60;
constexpr int64_t kWidth = 128;  // the layer is a matrix of 128 x 128

// Trains a layer to imitate another layer, whose matrix has rank 2. Returns the loss on samples that no rank trained
// on.
absl::StatusOr<double> Train(comm::ProcessGroup& group, ddp::CommunicationHook hook) {
  at::Generator random = at::detail::createCPUGenerator(/*seed=*/1);  // the same on every rank
  const at::Tensor teacher = at::randn({kWidth, 2}, random).mm(at::randn({2, kWidth}, random)) / 16;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net,
                            ddp::Wrap(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)), &group));
  net.module()->weight.detach().zero_();
  // Without a hook, DDP all-reduces the gradients. All ranks must register the same hook.
  if (hook) LOCKSTEP_RETURN_IF_ERROR(net.RegisterHook(std::move(hook)));

  torch::optim::SGD optimizer(net.parameters(), /*lr=*/20);
  at::Generator own = at::detail::createCPUGenerator(100 + group.rank());  // this rank's samples
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor inputs = at::randn({256, kWidth}, own);
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(net(inputs), inputs.mm(teacher)).backward();  // calls the hook for each bucket
    optimizer.step();
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(net.parameters(), group));
  const at::Tensor inputs = at::randn({256, kWidth}, random);
  return torch::nn::functional::mse_loss(net.module()->forward(inputs), inputs.mm(teacher)).item<double>();
}

absl::Status Compare(comm::ProcessGroup& group) {
  ddp::hooks::PowerSgdOptions options;
  options.matrix_approximation_rank = 2;  // columns of each thin matrix
  options.start_power_sgd_iter = 5;       // plain all-reduces in the first 5 steps
  options.statistics = std::make_shared<ddp::hooks::CompressionStatistics>();
  LOCKSTEP_ASSIGN_OR_RETURN(ddp::CommunicationHook hook, ddp::hooks::PowerSgd(&group, options));

  LOCKSTEP_ASSIGN_OR_RETURN(const double loss, Train(group, std::move(hook)));
  LOCKSTEP_ASSIGN_OR_RETURN(const double plain, Train(group, nullptr));
  const double rate = options.statistics->rate();
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the compression rate", rate, 32, 32));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the loss", loss, 0, 1e-3));
  Say(group, absl::StrCat("power_sgd: ", group.size(), " ranks exchanged ", rate, " times fewer numbers; loss ", loss,
                          " instead of ", plain));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: gradients compressed by PowerSGD.", /*ranks=*/2, Compare);
}
