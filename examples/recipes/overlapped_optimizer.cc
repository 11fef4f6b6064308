// An optimizer that steps during backward, and the search for a slow rank.
//
//   bazel run //examples/recipes:overlapped_optimizer
//
// Claim: stepping each parameter as soon as its gradient is averaged gives the bits of a step after backward. If rank 1
// takes 20 ms longer for each step, FindSlowestRank() names it. It prints
//
//   overlapped_optimizer: 3 ranks ended with the bits of a step after backward
//   overlapped_optimizer: rank 1 (host a, pid 123) is the slowest of 3: 20.4 ms a step, 5012 % more than the median 0.4
//   ms (10 steps)

#include "lockstep/ddp/overlapped_optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/slowest_rank.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

using Net = ddp::DistributedDataParallel<torch::nn::Linear>;
using OverlappedSgd = ddp::OverlappedOptimizer<torch::optim::SGD>;

constexpr int kSteps = 10;

absl::StatusOr<Net> MakeNet(comm::ProcessGroup& group) {
  torch::manual_seed(1);
  return ddp::Wrap(torch::nn::Linear(64, 1), &group);
}

at::Tensor Loss(Net& net, int rank, int step) {
  const at::Tensor inputs = at::randn({16, 64}, at::detail::createCPUGenerator(1000 * rank + step));
  const at::Tensor outputs = net(inputs);
  if (rank == 1) absl::SleepFor(absl::Milliseconds(20));  // the slow rank
  return torch::nn::functional::mse_loss(outputs, inputs.sum(1, /*keepdim=*/true));
}

absl::Status Compare(comm::ProcessGroup& group) {
  const torch::optim::SGDOptions sgd = torch::optim::SGDOptions(/*lr=*/0.01).momentum(0.9);
  LOCKSTEP_ASSIGN_OR_RETURN(Net net, MakeNet(group));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<OverlappedSgd> optimizer, OverlappedSgd::Create(net, sgd));
  for (int step = 0; step < kSteps; ++step) Loss(net, group.rank(), step).backward();  // steps, and frees gradients

  LOCKSTEP_ASSIGN_OR_RETURN(Net plain_net, MakeNet(group));
  torch::optim::SGD plain(plain_net.parameters(), sgd);
  for (int step = 0; step < kSteps; ++step) {
    plain.zero_grad();
    Loss(plain_net, group.rank(), step).backward();
    plain.step();
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(net.parameters(), group));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference from a step after backward",
                                       MaxDifference(net.parameters(), plain_net.parameters()), 0, 0));
  Say(group,
      absl::StrCat("overlapped_optimizer: ", group.size(), " ranks ended with the bits of a step after backward"));

  // Every rank calls it, and all get the same result.
  LOCKSTEP_ASSIGN_OR_RETURN(const ddp::SlowestRank slowest, ddp::FindSlowestRank(net, /*last_steps=*/kSteps));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the slowest rank", slowest.rank, 1, 1));
  Say(group, absl::StrCat("overlapped_optimizer: ", Describe(slowest)));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: an optimizer that steps during backward, and the search for a slow rank.",
                    /*ranks=*/3, Compare);
}
