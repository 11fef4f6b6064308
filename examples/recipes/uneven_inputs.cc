// Uneven inputs: rank r has 4 + 3r batches. Under Join, a rank that is done takes part in the collectives of the
// others.
//
//   bazel run //examples/recipes:uneven_inputs
//
// Claim: no batch is dropped. Each step is that of one process which trains on the batches of all ranks that still have
// one. It prints
//
//   uneven_inputs: 3 ranks trained on 4 to 10 batches; one process on all of them ends within 0

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/join.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

constexpr double kLearningRate = 0.1;

int BatchesOf(int rank) { return 4 + 3 * rank; }

at::Tensor Batch(int rank, int step) { return at::randn({8, 10}, at::detail::createCPUGenerator(1000 * rank + step)); }

template <typename Model>
void Step(Model& model, torch::optim::Optimizer& optimizer, const at::Tensor& inputs) {
  optimizer.zero_grad();
  torch::nn::functional::mse_loss(model.forward(inputs), inputs.sum(1, /*keepdim=*/true)).backward();
  optimizer.step();
}

absl::Status Train(comm::ProcessGroup& group) {
  torch::nn::Linear model(10, 1);
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(model, &group));
  const auto alone = std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->clone());

  torch::optim::SGD optimizer(net.parameters(), kLearningRate);
  ddp::JoinOptions options;
  options.divide_by_initial_world_size = false;  // divide by the number of ranks that still have a batch
  ddp::Join join({net}, options);
  for (int step = 0; step < BatchesOf(group.rank()); ++step) Step(net, optimizer, Batch(group.rank(), step));
  LOCKSTEP_RETURN_IF_ERROR(join.Finish());  // blocks until all ranks are done
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(net.parameters(), group));

  torch::optim::SGD alone_optimizer(alone->parameters(), kLearningRate);
  for (int step = 0; step < BatchesOf(group.size() - 1); ++step) {
    std::vector<at::Tensor> inputs;
    for (int rank = 0; rank < group.size(); ++rank) {
      if (step < BatchesOf(rank)) inputs.push_back(Batch(rank, step));
    }
    Step(*alone, alone_optimizer, at::cat(inputs));
  }
  const double difference = MaxDifference(alone->parameters(), net.parameters());
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference from one process", difference, 0, 1e-6));
  Say(group,
      absl::StrCat("uneven_inputs: ", group.size(), " ranks trained on ", BatchesOf(0), " to ",
                   BatchesOf(group.size() - 1), " batches; one process on all of them ends within ", difference));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: ranks with different numbers of batches.", /*ranks=*/3, Train);
}
