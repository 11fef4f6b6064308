// Trains a network on Fashion-MNIST with DistributedDataParallel:
//   bazel run //examples/fashion_mnist:train                               # two ranks on this machine
//   bazel run //examples/fashion_mnist:train -- --checkpoint_dir=/tmp/run  # run it again to resume

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/fashion_mnist/metrics.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/program/saved_flag.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/sampler/sampler_state_value.h"
#include "lockstep/sampler/torch_sampler.h"
#include "lockstep/sampler/virtual_rank_sampler.h"
#include "lockstep/tools/launch/spawn.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_int64(epochs, 5, "The number of passes over the training images.");
DEFINE_int64(batch_size, 1024, "Images per step, over all ranks.");
DEFINE_int32(virtual_ranks, 0, "Train to the same bits on up to so many ranks. Must divide --batch_size. 0: off.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(checkpoint_dir, "", "The folder of the run's checkpoints; the newest one is resumed. Empty: none.");
DEFINE_int64(checkpoint_every, 20, "Save a checkpoint every so many steps, and after each epoch.");

namespace lockstep::examples {
namespace {

absl::Status Train(comm::ProcessGroup* group) {
  const int rank = group->rank(), ranks = group->size(), parts = FLAGS_virtual_ranks ? FLAGS_virtual_ranks : ranks;
  if (parts < ranks) return FlagError("virtual_ranks", parts, absl::StrCat("0, or at least the ", ranks, " ranks"));
  if (FLAGS_batch_size % parts) return FlagError("batch_size", FLAGS_batch_size, absl::StrCat("a multiple of ", parts));
  LOCKSTEP_ASSIGN_OR_RETURN(auto train, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(auto test, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTest));
  const int64_t epoch_steps = (train.size() - 1) / FLAGS_batch_size + 1, all_steps = FLAGS_epochs * epoch_steps;
  const auto bounds = comm::EvenBounds(parts, ranks);  // of each rank's parts; without virtual ranks it has one
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::VirtualRankSampler::Create(train.size(), {.num_replicas = parts},
                                                                              bounds[rank], bounds[rank + 1]));
  if (FLAGS_virtual_ranks && !getenv("OMP_NUM_THREADS")) torch::set_num_threads(1);  // their number affects rounding
  torch::manual_seed(0);
  ddp::Options options;
  options.virtual_ranks = FLAGS_virtual_ranks;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Net(), group, options));
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  int64_t step = 0, consumed = 0;  // steps of the run, and this rank's images since it began or resumed the epoch
  std::unique_ptr<checkpoint::Manager> manager;
  const auto save = [&]() -> absl::Status {
    if (!manager) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value optimizer_state, checkpoint::OptimizerStateDict(optimizer));
    return manager->Save(step, checkpoint::Value::Dict({{"batch_size", FLAGS_batch_size},
                                                        {"virtual_ranks", FLAGS_virtual_ranks},
                                                        {"state_dict", checkpoint::StateDict(*net.module())},
                                                        {"optimizer", optimizer_state},
                                                        {"sampler", sampler::ToValue(sampler.State(consumed))},
                                                        {"bucket_layout", ddp::ToValue(net.bucket_layout(), ranks)}}));
  };
  const auto restore = [&](const checkpoint::Value& saved) -> absl::Status {
    const auto part = [&](const char* key) { return saved.Find(key) ? *saved.Find(key) : checkpoint::Value(); };
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net.module(), part("state_dict")));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(optimizer, part("optimizer")));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto place, sampler::ToSamplerState(part("sampler")));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto buckets, ddp::ToBucketLayout(part("bucket_layout"), ranks));
    LOCKSTEP_RETURN_IF_ERROR(net.RestoreBucketLayout(buckets));  // with many ranks, it affects rounding
    LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, "batch_size", FLAGS_batch_size));
    LOCKSTEP_RETURN_IF_ERROR(CheckSavedFlag(saved, "virtual_ranks", FLAGS_virtual_ranks));
    return sampler.Restore(place);
  };
  std::ostream out(rank == 0 ? std::cout.rdbuf() : nullptr);
  if (!FLAGS_checkpoint_dir.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(manager, checkpoint::Manager::Create(FLAGS_checkpoint_dir, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto newest, manager->LoadLatest());
    if (newest) LOCKSTEP_RETURN_IF_ERROR(Annotate(restore(newest->value), newest->info.path));
    step = newest ? newest->info.step : 0;
    out << (newest ? "resuming from " + newest->info.path : "no checkpoint yet in " + FLAGS_checkpoint_dir)
        << absl::StrFormat(": %d of %d steps are done\n", step, all_steps);
  }
  out << (step < all_steps ? "epoch   train loss   test accuracy    images/s   seconds\n" : "this run is finished\n");
  while (step < all_steps) {
    const absl::Time start = absl::Now();
    const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler),
                                                      FLAGS_batch_size / parts);
    const at::Tensor losses = torch::zeros({parts, 2}, torch::kDouble);  // their sum and number, of each part
    for (auto batch = loader->begin(); batch != loader->end();) {
      LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
        optimizer.param_groups()[0].options().set_lr(kLearningRate * ScheduledShare(step, all_steps));
        optimizer.zero_grad();
        for (const int part : net.VirtualRanks(step)) {
          const at::Tensor loss = torch::nn::functional::cross_entropy(net(Normalized(batch->data)), batch->target);
          loss.backward();  // averages the gradients over the ranks, in the last part
          losses[part] += torch::tensor({loss.item<double>(), 1.0}, torch::kDouble);
          consumed += batch->target.size(0);
          ++batch;
        }
        optimizer.step();
      }));
      if (++step % FLAGS_checkpoint_every == 0 && step % epoch_steps != 0) LOCKSTEP_RETURN_IF_ERROR(save());
    }
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    const double speed = consumed / sampler.num_virtual_ranks() * parts / seconds;
    sampler.set_epoch(step / epoch_steps);
    consumed = 0;
    LOCKSTEP_RETURN_IF_ERROR(save());
    LOCKSTEP_ASSIGN_OR_RETURN(const double loss, MeanLoss(losses, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(net.module(), test, parts, group));
    out << absl::StrFormat("%5d   %10.4f   %13.4f   %9.0f   %7.1f", step / epoch_steps, loss, accuracy, speed, seconds)
        << std::endl;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(net.module(), test, parts, group));
  out << absl::StrFormat("done: test accuracy %.4f after %d epochs", accuracy, step / epoch_steps) << std::endl;
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1},
                                        {"epochs", FLAGS_epochs * 1.0, 1},
                                        {"batch_size", FLAGS_batch_size * 1.0, 1},
                                        {"checkpoint_every", FLAGS_checkpoint_every * 1.0, 1}}));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({.backend = FLAGS_backend}));
    return FinishRank(group.get(), Train(group.get()));
  });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);  // or LibTorch would log our errors, too, with its stack
  lockstep::ParseCommandLine(argc, argv, {.source = __FILE__, .description = "Trains a network on Fashion-MNIST."});
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << absl::StrCat("train: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
