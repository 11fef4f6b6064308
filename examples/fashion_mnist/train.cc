// Trains a network on Fashion-MNIST with DistributedDataParallel: bazel run //examples/fashion_mnist:train
// resume.cc trains the same, saves checkpoints, and goes on when a rank dies.

#include <gflags/gflags.h>
#include <torch/torch.h>

#include "absl/time/clock.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/fashion_mnist/metrics.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_int64(epochs, 5, "The number of passes over the training images.");
DEFINE_int64(batch_size, 1024, "Images per step, over all ranks.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");

namespace lockstep::examples {

absl::Status Train(comm::ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size();
  LOCKSTEP_RETURN_IF_ERROR(CheckMultiple("batch_size", FLAGS_batch_size, ranks));
  LOCKSTEP_ASSIGN_OR_RETURN(auto train, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(auto test, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTest));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(train.size(), {ranks, rank}));
  const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler),
                                                    FLAGS_batch_size / ranks);
  torch::manual_seed(0);
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Net(), &group));
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  const int64_t all_steps = FLAGS_epochs * ((train.size() - 1) / FLAGS_batch_size + 1);
  double accuracy = 0;
  Say(group, kEpochHeading);
  for (int64_t epoch = 0, step = 0; epoch < FLAGS_epochs; ++epoch) {
    const absl::Time begin = absl::Now();
    const at::Tensor losses = torch::zeros({ranks, 2}, torch::kDouble);  // their sum and number, of each rank
    sampler.set_epoch(epoch);                                            // for another order of the images
    for (const auto& batch : *loader) {
      optimizer.param_groups()[0].options().set_lr(kLearningRate * ScheduledShare(step++, all_steps));
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(net(Normalized(batch.data)), batch.target);
      loss.backward();  // averages the gradients over the ranks
      optimizer.step();
      losses[rank] += torch::tensor({loss.item<double>(), 1.0}, torch::kDouble);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double loss, MeanLoss(losses, &group));
    const absl::Duration time = absl::Now() - begin;
    LOCKSTEP_ASSIGN_OR_RETURN(accuracy, TestAccuracy(net.module(), test, ranks, &group));
    Say(group, EpochRow(epoch, loss, accuracy, train.size(), time));
  }
  Say(group, ResultLine(accuracy, FLAGS_epochs));
  return absl::OkStatus();
}

}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage = {.source = __FILE__, .description = "Trains a network on Fashion-MNIST."};
  usage.other_programs = {{"//examples/fashion_mnist:resume", {"checkpoint_dir", "elastic", "virtual_ranks"}}};
  return ExampleMain(argc, argv, usage, {"nproc_per_node", "epochs", "batch_size"},
                     [] { return OnRanks(FLAGS_nproc_per_node, {.backend = FLAGS_backend}, Train); });
}
