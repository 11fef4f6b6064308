// Batch normalisation over all ranks: with two samples a rank, the statistics of one rank are too noisy.
//
//   bazel run //examples/recipes:sync_batch_norm
//
// Claim: SyncBatchNorm trains like one process with BatchNorm on the batches of all ranks. With BatchNorm on each rank
// the model ends elsewhere. It prints
//
//   sync_batch_norm: 4 ranks with 2 samples each end within 5.96046e-08 of one process with all 8; with
//   BatchNorm, within 0.0413577

#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/sync_batch_norm/norm_factory.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

// A model takes a factory of normalisation layers. A layer is an AnyModule: norm_factory.h shows a class with one.
torch::nn::Sequential MakeNet(const ddp::NormFactory& norm_factory) {
  torch::manual_seed(1);  // the same parameters for every factory
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)), norm_factory(4), torch::nn::ReLU(),
                               torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten());
}

at::Tensor Images(int rank, int step) {
  return at::randn({2, 3, 8, 8}, at::detail::createCPUGenerator(1000 * rank + step)) * (rank + 1);
}

template <typename Model, typename MakeImages>
void Train(Model& model, const std::vector<at::Tensor>& parameters, MakeImages make_images) {
  torch::optim::SGD optimizer(parameters, /*lr=*/0.1);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor images = make_images(step);
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(model.forward(images), images.flatten(1).slice(1, 0, 4)).backward();
    optimizer.step();
  }
}

// The parameters after training on all ranks.
absl::StatusOr<std::vector<at::Tensor>> TrainOnRanks(comm::ProcessGroup& group, const ddp::NormFactory& norm_factory) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(MakeNet(norm_factory), &group));
  Train(net, net.parameters(), [&](int step) { return Images(group.rank(), step); });
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(net.parameters(), group));
  return net.parameters();
}

absl::Status Compare(comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto synced, TrainOnRanks(group, ddp::SyncBatchNormFactory(&group)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto unsynced, TrainOnRanks(group, ddp::BatchNorm2dFactory()));

  torch::nn::Sequential alone = MakeNet(ddp::BatchNorm2dFactory());
  Train(*alone, alone->parameters(), [&](int step) {
    std::vector<at::Tensor> images;
    for (int rank = 0; rank < group.size(); ++rank) images.push_back(Images(rank, step));
    return at::cat(images);
  });
  const double difference = MaxDifference(synced, alone->parameters());
  const double without = MaxDifference(unsynced, alone->parameters());
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference from one process", difference, 0, 1e-5));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference without SyncBatchNorm", without, 1e-2, 10));
  Say(group, absl::StrCat("sync_batch_norm: ", group.size(), " ranks with 2 samples each end within ", difference,
                          " of one process with all ", 2 * group.size(), "; with BatchNorm, within ", without));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: batch normalisation over the batches of all ranks.", /*ranks=*/4, Compare);
}
