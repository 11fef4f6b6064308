// The accuracy that training with a communication hook reaches: the trainer of examples/fashion_mnist, for one epoch.
//
//   ./bazelw run //tools/bench:hook_accuracy -- --hook=power_sgd

#include <gflags/gflags.h>
#include <torch/data/dataloader.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/fashion_mnist/metrics.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/torch_sampler.h"
#include "lockstep/tools/bench/hook_named.h"

DEFINE_int32(world_size, 2, "ranks");
DEFINE_string(hook, "none", "the communication hook: none, fp16; power_sgd of rank 4 from the second step on");
DEFINE_int64(epochs, 1, "passes over the training images");
DEFINE_int64(batch_size, 1024, "images a step, over all ranks");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "the folder of the four IDX files");

namespace lockstep {
namespace {

using data::FashionMnist;

absl::Status Train(comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTest));
  sampler::DistributedSamplerOptions shares;
  shares.num_replicas = group.size();
  shares.rank = group.rank();
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(train.size(), shares));
  torch::manual_seed(0);
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(examples::Net(), &group));
  LOCKSTEP_ASSIGN_OR_RETURN(ddp::CommunicationHook hook, HookNamed(FLAGS_hook, group));
  if (hook) LOCKSTEP_RETURN_IF_ERROR(net.RegisterHook(std::move(hook)));
  torch::optim::SGD optimizer(net.parameters(),
                              torch::optim::SGDOptions(examples::kLearningRate).momentum(examples::kMomentum));
  const int64_t own_batch = FLAGS_batch_size / group.size();
  const int64_t steps = FLAGS_epochs * ((sampler.num_samples() - 1) / own_batch + 1);
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < FLAGS_epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto loader =
        torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler), own_batch);
    for (const auto& batch : *loader) {
      optimizer.param_groups()[0].options().set_lr(examples::kLearningRate * examples::ScheduledShare(step++, steps));
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net(examples::Normalized(batch.data)), batch.target).backward();
      optimizer.step();
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, examples::TestAccuracy(net.module(), test, group.size(), &group));
  if (group.rank() == 0) {
    std::cout << nlohmann::json({{"case", FLAGS_hook}, {"epochs", FLAGS_epochs}, {"accuracy", accuracy}}) << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"world_size", static_cast<double>(FLAGS_world_size), 1, 256},
                                        {"epochs", static_cast<double>(FLAGS_epochs), 1, 1e6},
                                        {"batch_size", static_cast<double>(FLAGS_batch_size), 1, 60000}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("hook", FLAGS_hook, HookNames()));
  if (FLAGS_batch_size < FLAGS_world_size) {
    return FlagError("batch_size", FLAGS_batch_size, absl::StrCat("at least --world_size=", FLAGS_world_size));
  }
  return launch::Spawn(FLAGS_world_size, [](int) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({}));
    return TorchStatus("", [&] { ThrowIfError(Train(*group)); });
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains the network of examples/fashion_mnist with a communication hook, and prints a JSON line with the accuracy on the
test images.

  hook_accuracy --hook=power_sgd --world_size=2
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "hook_accuracy: " << status.message() << "\n";
  return lockstep::launch::ExitCode(status);
}
