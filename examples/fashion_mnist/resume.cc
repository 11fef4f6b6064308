// Trains as train.cc does, and can be interrupted:
//   bazel run //examples/fashion_mnist:resume -- --checkpoint_dir=/tmp/run  # run it again to resume
//   bazel run //examples/fashion_mnist:resume -- --virtual_ranks=8          # kill ranks: the result is the same
//
// It differs from train.cc in these parts:
//   OnRanks              elastic::World, which forms the next group when a rank dies
//   DistributedSampler   VirtualRankSampler, for any number of ranks; it begins at the run's place
//   the net, its wrapper and the optimizer
//                        RunState (run_state.h), which World keeps and checkpoints contain; elastic::Wrap
//   optimizer.step()     in World::Commit(), so that a step is done on all ranks or repeated

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/fashion_mnist/metrics.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/fashion_mnist/run_state.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/torch_sampler.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "auto", "The ranks' backend: auto, shm, gloo or hierarchical.");
DEFINE_int64(epochs, 5, "The number of passes over the training images.");
DEFINE_int64(batch_size, 1024, "Images per step, over all ranks.");
DEFINE_int32(virtual_ranks, 0, "Train to the same bits on up to so many ranks. Must divide --batch_size. 0: off.");
DEFINE_bool(adamw, false, "Train with AdamW, at a rate of 1e-3, instead of SGD.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(checkpoint_dir, "", "The folder of the run's checkpoints; the newest one is resumed. Empty: none.");
DEFINE_bool(elastic, false, "Go on when ranks die without --virtual_ranks too. The result then depends on who died.");

namespace lockstep::examples {
namespace {

constexpr int64_t kCheckpointEvery = 20;  // steps. Another checkpoint is saved after each epoch.

// Training with one group of ranks. If a rank dies, the next group has its own, with the same world and run.
struct Training {
  const data::FashionMnist &train, &test;
  comm::ProcessGroup* group;
  elastic::World& world;
  RunState& run;
  int parts;  // the number of virtual ranks, or without them of ranks
  sampler::VirtualRankSampler sampler;
  ddp::DistributedDataParallel<Net> net;
  std::unique_ptr<checkpoint::Manager> manager;  // null without --checkpoint_dir
  Progress& progress = run.progress;             // if a rank dies, it returns to what it was at the last Commit()
  int64_t epoch_steps = (train.size() - 1) / FLAGS_batch_size + 1, all_steps = FLAGS_epochs * epoch_steps;

  // Trains from the run's place to its end.
  absl::Status Run() {
    LOCKSTEP_RETURN_IF_ERROR(world.commits() == 0 ? Begin() : GoOn());
    while (progress.place.epoch < FLAGS_epochs) {
      LOCKSTEP_RETURN_IF_ERROR(TrainEpoch());
      LOCKSTEP_RETURN_IF_ERROR(EndEpoch());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(run.net, test, parts, group));
    Say(*group, ResultLine(accuracy, progress.place.epoch));
    return absl::OkStatus();
  }

  // The first group begins the run, or resumes it from the newest checkpoint.
  absl::Status Begin() {
    progress.place = sampler.State(0);
    if (manager) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string file, run.Resume(*manager, net, group->size(), sampler));
      const std::string begin = file.empty() ? "no checkpoint yet in " + FLAGS_checkpoint_dir : "resuming from " + file;
      Say(*group, absl::StrFormat("%s: %d of %d steps are done", begin, progress.step, all_steps));
    }
    LOCKSTEP_RETURN_IF_ERROR(world.BeginAt(progress.step));
    Say(*group, progress.place.epoch < FLAGS_epochs ? kEpochHeading : "this run is finished");
    return absl::OkStatus();
  }

  // The next groups have the run's state. The ranks before may have left between a step and its checkpoint.
  absl::Status GoOn() { return progress.step % kCheckpointEvery == 0 ? Save() : absl::OkStatus(); }

  // Trains from the run's place to the end of its epoch.
  absl::Status TrainEpoch() {
    // The groups after a rank has died go on within the epoch.
    if (run.begin.epoch != progress.place.epoch) {
      run.begin = {progress.place.epoch, progress.place.consumed, absl::Now()};
    }
    LOCKSTEP_RETURN_IF_ERROR(sampler.Restore(progress.place));
    const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler),
                                                      FLAGS_batch_size / parts);
    int64_t consumed = 0;  // this rank's images, from that place
    for (auto batch = loader->begin(); batch != loader->end();) {
      const at::Tensor losses = torch::zeros({parts, 2}, torch::kDouble);
      LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { consumed += Backward(batch, losses); }));
      LOCKSTEP_ASSIGN_OR_RETURN(const double loss, MeanLoss(losses, group));
      LOCKSTEP_RETURN_IF_ERROR(world.Commit([&] { Step(loss, consumed); }));
      if (progress.step % kCheckpointEvery == 0 && batch != loader->end()) LOCKSTEP_RETURN_IF_ERROR(Save());
    }
    return absl::OkStatus();
  }

  // Computes a step's gradients from a batch of each virtual rank of this rank. Writes the losses (MeanLoss), and
  // returns the number of images.
  template <typename Iterator>
  int64_t Backward(Iterator& batch, const at::Tensor& losses) {
    int64_t images = 0;
    run.optimizer->zero_grad();
    for (const int part : net.VirtualRanks(progress.step)) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(net(Normalized(batch->data)), batch->target);
      loss.backward();  // averages the gradients over the ranks, in the last part
      losses[part] = torch::tensor({loss.item<double>(), 1.0}, torch::kDouble);
      images += batch->target.size(0);
      ++batch;
    }
    return images;
  }

  // Within Commit(), when nothing can fail any more.
  void Step(double loss, int64_t consumed) {
    const int64_t done = progress.place.epoch * epoch_steps + progress.place.consumed / FLAGS_batch_size;
    run.optimizer->param_groups()[0].options().set_lr(run.learning_rate * ScheduledShare(done, all_steps));
    run.optimizer->step();
    progress = {progress.step + 1, sampler.State(consumed), progress.losses + loss, progress.loss_steps + 1};
  }

  // Evaluates, saves and prints. If a rank dies before the row is printed, the next group repeats it.
  absl::Status EndEpoch() {
    const absl::Duration time = absl::Now() - run.begin.time;
    LOCKSTEP_ASSIGN_OR_RETURN(const double accuracy, TestAccuracy(run.net, test, parts, group));
    const double loss = progress.losses / static_cast<double>(progress.loss_steps);
    const std::string row = EpochRow(progress.place.epoch, loss, accuracy, train.size() - run.begin.consumed, time);
    sampler.set_epoch(progress.place.epoch + 1);
    progress = {progress.step, sampler.State(0)};
    LOCKSTEP_RETURN_IF_ERROR(Save());
    return world.Commit([&] { Say(*group, row); });
  }

  absl::Status Save() const { return run.Save(manager.get(), net, group->size()); }
};

absl::Status TrainWith(const data::FashionMnist& train, const data::FashionMnist& test, comm::ProcessGroup* group,
                       elastic::World& world, RunState& run) {
  const int ranks = group->size(), parts = FLAGS_virtual_ranks ? FLAGS_virtual_ranks : ranks;
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto sampler, sampler::VirtualRankSampler::Create(train.size(), group->rank(), ranks, {.num_replicas = parts}));
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, elastic::Wrap(run.net, group, {.virtual_ranks = FLAGS_virtual_ranks}));
  std::unique_ptr<checkpoint::Manager> manager;
  if (!FLAGS_checkpoint_dir.empty()) {
    // With virtual ranks, the files are the same on any number of ranks.
    const checkpoint::ManagerOptions options = {.independent_of_ranks = FLAGS_virtual_ranks > 0};
    LOCKSTEP_ASSIGN_OR_RETURN(manager, checkpoint::Manager::Create(FLAGS_checkpoint_dir, group, options));
  }
  return Training{train, test, group, world, run, parts, std::move(sampler), std::move(net), std::move(manager)}.Run();
}

absl::Status TrainAsRank() {
  if (FLAGS_virtual_ranks && !getenv("OMP_NUM_THREADS")) torch::set_num_threads(1);  // their number affects rounding
  torch::manual_seed(0);
  RunState run = {FLAGS_batch_size, FLAGS_virtual_ranks, FLAGS_adamw};
  LOCKSTEP_RETURN_IF_ERROR(run.CheckFlags(FLAGS_elastic));
  const elastic::Options options = {
      .max_ranks = FLAGS_virtual_ranks, .backend = FLAGS_backend, .regroups = FLAGS_virtual_ranks > 0 || FLAGS_elastic};
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto train, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(auto test, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTest));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *run.net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", *run.optimizer));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("progress", &run.progress));
  const absl::Status status =
      world->Run([&](comm::ProcessGroup* group) { return TrainWith(train, test, group, *world, run); });
  return world->is_elastic() || world->generation().world_size == 1 ? status : OfRank(status, world->generation().rank);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage = {.source = __FILE__,
                                  .description = "Trains a network on Fashion-MNIST, with checkpoints."};
  return ExampleMain(argc, argv, usage, {"nproc_per_node", "epochs", "batch_size"}, [] {
    return lockstep::launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return TrainAsRank(); });
  });
}
