// Trains a network on Fashion-MNIST with DistributedDataParallel:
//   bazel run //examples/fashion_mnist:train                               # two ranks on this machine
//   bazel run //examples/fashion_mnist:train -- --checkpoint_dir=/tmp/run  # run it again to resume
//   bazel run //examples/fashion_mnist:train -- --virtual_ranks=8          # kill ranks: the result is the same

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/fashion_mnist/metrics.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/fashion_mnist/run_state.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/torch_sampler.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_int64(epochs, 5, "The number of passes over the training images.");
DEFINE_int64(batch_size, 1024, "Images per step, over all ranks.");
DEFINE_int32(virtual_ranks, 0, "Train to the same bits on up to so many ranks. Must divide --batch_size. 0: off.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(checkpoint_dir, "", "The folder of the run's checkpoints; the newest one is resumed. Empty: none.");
DEFINE_bool(elastic, false, "Go on when ranks die without --virtual_ranks too. The result then depends on who died.");

namespace lockstep::examples {
namespace {

constexpr int64_t kCheckpointEvery = 20;  // steps. Another checkpoint is saved after each epoch.

// Trains with one group of ranks from where `run` is. If a rank dies, the next group goes on.
absl::Status Train(const data::FashionMnist& train, const data::FashionMnist& test, comm::ProcessGroup* group,
                   elastic::World& world, RunState& run) {
  const int rank = group->rank(), ranks = group->size(), parts = FLAGS_virtual_ranks ? FLAGS_virtual_ranks : ranks;
  const int64_t epoch_steps = (train.size() - 1) / FLAGS_batch_size + 1, all_steps = FLAGS_epochs * epoch_steps;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            sampler::VirtualRankSampler::Create(train.size(), rank, ranks, {.num_replicas = parts}));
  ddp::Options options;
  options.virtual_ranks = FLAGS_virtual_ranks;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, elastic::Wrap(run.net, group, options));
  Progress& progress = run.progress;  // changes in Commit(), and else returns to what it was if a rank dies
  std::ostream out(rank == 0 ? std::cout.rdbuf() : nullptr);
  const bool begins = world.commits() == 0;  // other groups have the state of the group before
  if (begins) progress.place = sampler.State(0);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto manager, run.MakeManager(FLAGS_checkpoint_dir, group));
  if (manager && begins) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string file, run.Resume(*manager, net, ranks, sampler));
    out << (file.empty() ? "no checkpoint yet in " + FLAGS_checkpoint_dir : "resuming from " + file)
        << absl::StrFormat(": %d of %d steps are done\n", progress.step, all_steps);
  }
  if (begins) LOCKSTEP_RETURN_IF_ERROR(world.BeginAt(progress.step));
  // The ranks before may have left between a step and its checkpoint.
  if (!begins && progress.step % kCheckpointEvery == 0) LOCKSTEP_RETURN_IF_ERROR(run.Save(manager.get(), net, ranks));
  if (begins) out << (progress.place.epoch < FLAGS_epochs ? kEpochHeading : "this run is finished\n") << std::flush;
  while (progress.place.epoch < FLAGS_epochs) {
    run.BeginEpoch();
    LOCKSTEP_RETURN_IF_ERROR(sampler.Restore(progress.place));
    const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler),
                                                      FLAGS_batch_size / parts);
    int64_t consumed = 0;  // this rank's images, in this group
    for (auto batch = loader->begin(); batch != loader->end();) {
      const at::Tensor losses = torch::zeros({parts, 2}, torch::kDouble);  // their sum and number, of each part
      LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
        run.optimizer.zero_grad();
        for (const int part : net.VirtualRanks(progress.step)) {
          const at::Tensor loss = torch::nn::functional::cross_entropy(net(Normalized(batch->data)), batch->target);
          loss.backward();  // averages the gradients over the ranks, in the last part
          losses[part] = torch::tensor({loss.item<double>(), 1.0}, torch::kDouble);
          consumed += batch->target.size(0);
          ++batch;
        }
      }));
      LOCKSTEP_ASSIGN_OR_RETURN(const double loss, MeanLoss(losses, group));
      LOCKSTEP_RETURN_IF_ERROR(world.Commit([&] {
        const int64_t done = progress.place.epoch * epoch_steps + progress.place.consumed / FLAGS_batch_size;
        run.optimizer.param_groups()[0].options().set_lr(kLearningRate * ScheduledShare(done, all_steps));
        run.optimizer.step();
        progress = {progress.step + 1, sampler.State(consumed), progress.losses + loss, progress.loss_steps + 1};
      }));
      if (progress.step % kCheckpointEvery == 0 && batch != loader->end())
        LOCKSTEP_RETURN_IF_ERROR(run.Save(manager.get(), net, ranks));
    }
    const double seconds = run.EpochSeconds();
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(run.net, test, parts, group));
    const std::string line = run.EpochLine(train.size(), seconds, accuracy);
    sampler.set_epoch(progress.place.epoch + 1);
    progress = {progress.step, sampler.State(0)};
    LOCKSTEP_RETURN_IF_ERROR(run.Save(manager.get(), net, ranks));
    LOCKSTEP_RETURN_IF_ERROR(
        world.Commit([&] { out << line << std::endl; }));  // until here a death repeats the epoch's end
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(run.net, test, parts, group));
  out << absl::StrFormat("done: test accuracy %.4f after %d epochs", accuracy, progress.place.epoch) << std::endl;
  return absl::OkStatus();
}

absl::Status TrainAsRank() {
  if (FLAGS_virtual_ranks && !getenv("OMP_NUM_THREADS")) torch::set_num_threads(1);  // their number affects rounding
  torch::manual_seed(0);
  RunState run = {FLAGS_batch_size, FLAGS_virtual_ranks};
  LOCKSTEP_RETURN_IF_ERROR(run.CheckFlags(FLAGS_elastic));
  elastic::Options options;
  options.max_ranks = FLAGS_virtual_ranks;
  options.backend = FLAGS_backend;
  options.regroups = FLAGS_virtual_ranks > 0 || FLAGS_elastic;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto train, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(auto test, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTest));
  LOCKSTEP_RETURN_IF_ERROR(run.KeepIn(*world));
  const absl::Status status =
      world->Run([&](comm::ProcessGroup* group) { return Train(train, test, group, *world, run); });
  return world->is_elastic() || world->generation().world_size == 1 ? status : OfRank(status, world->generation().rank);
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1},
                                        {"epochs", FLAGS_epochs * 1.0, 1},
                                        {"batch_size", FLAGS_batch_size * 1.0, 1}}));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return TrainAsRank(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);  // or LibTorch would log our errors, too, with its stack
  lockstep::ParseCommandLine(argc, argv, {.source = __FILE__, .description = "Trains a network on Fashion-MNIST."});
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << absl::StrFormat("train: %s\n", status.message());
  return lockstep::launch::ExitCode(status);
}
