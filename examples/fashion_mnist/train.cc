// Trains a network on Fashion-MNIST with DistributedDataParallel:
//
//   bazel run //examples/fashion_mnist:train                               # two ranks on this machine
//   bazel run //examples/fashion_mnist:train -- --checkpoint_dir=/tmp/run  # run it again to resume
//   bazel-bin/tools/launch/launch --nproc_per_node=2 bazel-bin/examples/fashion_mnist/train  # or torchrun --no-python
//
//   epoch   train loss   test accuracy    images/s   seconds
//       1       1.1771          0.7965       60029       1.0
//   ...
//   done: test accuracy 0.8779 after 5 epochs

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/program/flag_error.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/sampler_state_value.h"
#include "lockstep/tools/launch/spawn.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_int64(epochs, 5, "The number of passes over the training images.");
DEFINE_int64(batch_size, 1024, "Images per step, over all ranks.");
DEFINE_int64(seed, 0, "Seed for the initial parameters and the image order.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(checkpoint_dir, "", "The folder of the run's checkpoints; the newest one is resumed. Empty: none.");
DEFINE_int64(checkpoint_every, 20, "Save a checkpoint every so many steps, and after each epoch.");

namespace lockstep::examples {
namespace {

using checkpoint::Value;
using data::FashionMnist;

// One rank's part of the training.
struct Trainer {
  comm::ProcessGroup* group;
  FashionMnist train, test;
  sampler::DistributedSampler sampler;
  ddp::DistributedDataParallel<Net> net;
  torch::optim::SGD optimizer{net.parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum)};
  std::unique_ptr<checkpoint::Manager> manager = nullptr;  // null without --checkpoint_dir
  int64_t steps_per_epoch = (train.labels().size(0) + FLAGS_batch_size - 1) / FLAGS_batch_size;
  int64_t step = 0;  // of the whole run
  int64_t used = 0;  // this rank's images since it began or resumed the epoch

  static absl::Status Train(comm::ProcessGroup* group) {
    const int ranks = group->size();
    if (FLAGS_batch_size % ranks != 0)
      return FlagError("batch_size", FLAGS_batch_size, absl::StrCat("a multiple of the number of ranks, ", ranks));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto train, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTrain));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto test, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTest));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto sampler,
        sampler::DistributedSampler::Create(train.labels().size(0),
                                            {.num_replicas = ranks, .rank = group->rank(), .seed = FLAGS_seed}));
    torch::manual_seed(FLAGS_seed);
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Net(), group));
    return Trainer{group, train, test, sampler, std::move(net)}.Run();
  }

  absl::Status Run() {
    if (!FLAGS_checkpoint_dir.empty()) LOCKSTEP_RETURN_IF_ERROR(Resume());
    if (step < FLAGS_epochs * steps_per_epoch) Say("epoch   train loss   test accuracy    images/s   seconds");
    while (step < FLAGS_epochs * steps_per_epoch) LOCKSTEP_RETURN_IF_ERROR(TrainEpoch());
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy());
    Say(absl::StrFormat("done: test accuracy %.4f after %d epochs", accuracy, step / steps_per_epoch));
    return absl::OkStatus();
  }

  // Continues from the newest intact checkpoint, if there is one.
  absl::Status Resume() {
    LOCKSTEP_ASSIGN_OR_RETURN(manager, checkpoint::Manager::Create(FLAGS_checkpoint_dir, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto last, manager->LoadLatest());
    if (!last) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(Annotate(Restore(last->value), last->info.path));
    step = last->info.step;
    Say(absl::StrFormat("resuming from %s: after %d epochs and %d of %d steps", last->info.path, step / steps_per_epoch,
                        step % steps_per_epoch, steps_per_epoch));
    if (step >= FLAGS_epochs * steps_per_epoch)
      Say("this run is finished; more --epochs or another --checkpoint_dir train on");
    return absl::OkStatus();
  }

  absl::Status Restore(const Value& file) {
    const auto part = [&](const char* key) { return file.Find(key) ? *file.Find(key) : Value(); };
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net.module(), part("state_dict")));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(optimizer, part("optimizer")));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto buckets, ddp::ToBucketLayout(part("bucket_layout"), group->size()));
    LOCKSTEP_RETURN_IF_ERROR(net.RestoreBucketLayout(buckets));  // with many ranks the rounding depends on it
    LOCKSTEP_ASSIGN_OR_RETURN(const auto place, sampler::ToSamplerState(part("sampler")));
    return sampler.Restore(place);
  }

  absl::Status Save() {
    if (!manager) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, checkpoint::OptimizerStateDict(optimizer));
    return manager->Save(step, Value::Dict({{"state_dict", checkpoint::StateDict(*net.module())},
                                            {"optimizer", optimizer_state},
                                            {"bucket_layout", ddp::ToValue(net.bucket_layout(), group->size())},
                                            {"sampler", sampler::ToValue(sampler.State(used))}}));
  }

  absl::Status TrainEpoch() {
    const auto loader = torch::data::make_data_loader(train.Stacked(), sampler, FLAGS_batch_size / group->size());
    const absl::Time start = absl::Now();
    at::Tensor losses = torch::zeros({2}, torch::kDouble);  // sum and number
    for (const torch::data::Example<>& batch : *loader) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double loss, Step(batch));
      losses += torch::tensor({loss, 1.0}, torch::kDouble);
      used += batch.target.size(0);
      if (++step % FLAGS_checkpoint_every == 0 && step % steps_per_epoch != 0) LOCKSTEP_RETURN_IF_ERROR(Save());
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start), speed = used * group->size() / seconds;
    sampler.set_epoch(step / steps_per_epoch);
    used = 0;
    LOCKSTEP_RETURN_IF_ERROR(Save());
    LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(losses));
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy());
    Say(absl::StrFormat("%5d   %10.4f   %13.4f   %9.0f   %7.1f", step / steps_per_epoch,
                        (losses[0] / losses[1]).item<double>(), accuracy, speed, seconds));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Step(const torch::data::Example<>& batch) {
    return TorchStatusOr("", [&] {
      optimizer.param_groups()[0].options().set_lr(LearningRate(step, FLAGS_epochs * steps_per_epoch));
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(net(Normalized(batch.data)), batch.target);
      loss.backward();  // averages the gradients over the ranks
      optimizer.step();
      return loss.item<double>();
    });
  }

  // The share of the test images that are classified correctly. Each image is on one rank and counts once.
  absl::StatusOr<double> TestAccuracy() {
    const torch::NoGradGuard no_grad;
    const int64_t size = test.labels().size(0);
    LOCKSTEP_ASSIGN_OR_RETURN(auto part, sampler::EvaluationSampler::Create(size, {group->size(), group->rank()}));
    at::Tensor correct = torch::zeros({1}, torch::kDouble);
    for (const auto& batch : *torch::data::make_data_loader(test.Stacked(), part, 1000))
      correct += net.module()(Normalized(batch.data)).argmax(1).eq(batch.target).sum();
    LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(correct));
    return correct.item<double>() / size;
  }

  void Say(const std::string& line) {
    if (group->rank() == 0) std::cout << line << std::endl;
  }
};

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1},
                                        {"epochs", FLAGS_epochs * 1.0, 1},
                                        {"batch_size", FLAGS_batch_size * 1.0, 1},
                                        {"checkpoint_every", FLAGS_checkpoint_every * 1.0, 1}}));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({.backend = FLAGS_backend}));
    return FinishRank(group.get(), Trainer::Train(group.get()));
  });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);  // or LibTorch would log our errors, too, with its stack
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = "Trains a network on Fashion-MNIST: on two ranks of this machine, or as a rank of a launcher.";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << "train: " << status.message() << std::endl;
  return lockstep::launch::ExitCode(status);
}
