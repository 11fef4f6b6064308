// Trains a network on Fashion-MNIST to the same bits, whatever ranks die meanwhile:
//   bazel run //examples/elastic:train -- --out=/tmp/quiet/net.pt
//   bazel run //examples/elastic:train -- --out=/tmp/killed/net.pt --kill_every=1   # a rank kills itself every second
//   sha256sum /tmp/quiet/net.pt /tmp/killed/net.pt                                  # or kill ranks yourself

#include <gflags/gflags.h>
#include <signal.h>
#include <torch/torch.h>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/example.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/step_loader.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/launch/spawn.h"

DEFINE_int32(nproc_per_node, 4, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_int64(epochs, 2, "The number of passes over the training images.");
DEFINE_double(kill_every, 0, "Seconds after which a rank of each group kills itself. 0: never.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(out, "", "The file that gets the network at the end. Empty: none.");

namespace lockstep::examples {
namespace {

constexpr int kVirtualRanks = 8, kBatchSize = 1024;  // a batch is one step's images, of all ranks

absl::Status Train() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train,
                            data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(auto test, data::FashionMnist::Load(FLAGS_data_dir, data::FashionMnist::Split::kTest));
  torch::set_num_threads(1);  // their number affects rounding
  torch::manual_seed(0);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kLearningRate).momentum(kMomentum));
  int64_t step = 0;
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));

  // Called for each group of ranks. What depends on the group is made here.
  const auto train_with = [&](comm::ProcessGroup* group) -> absl::Status {
    const absl::Time start = absl::Now();
    const int rank = group->rank(), ranks = group->size();
    const bool dies = FLAGS_kill_every > 0 && ranks > 1 && rank == world->generation().number % ranks;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto batches,
        data::StepLoader::Create(&train, rank, ranks, {.batch_size = kBatchSize, .virtual_ranks = kVirtualRanks}));
    const int64_t all_steps = FLAGS_epochs * batches->epoch_steps();
    Say(*group, absl::StrFormat("%d ranks, from step %d of %d", ranks, step, all_steps));
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net, group, {.virtual_ranks = kVirtualRanks}));
    while (step < all_steps) {
      LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
        optimizer.param_groups()[0].options().set_lr(kLearningRate * ScheduledShare(step, all_steps));
        optimizer.zero_grad();
        for ([[maybe_unused]] const int virtual_rank : ddp.VirtualRanks(step)) {
          const data::Example batch = batches->Next(step);
          torch::nn::functional::cross_entropy(ddp(Normalized(batch.data)), batch.target).backward();
        }
      }));
      LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
        optimizer.step();
        ++step;
      }));
      if (dies && absl::Now() - start > absl::Seconds(FLAGS_kill_every)) raise(SIGKILL);
    }
    if (rank != 0) return absl::OkStatus();  // World waits for rank 0. If it dies, this function runs again.
    const torch::NoGradGuard no_grad;
    const auto all = test.images().to(torch::kFloat).div(255).view({-1, 1, 28, 28});
    const double correct = net(Normalized(all)).argmax(1).eq(test.labels()).to(torch::kDouble).mean().item<double>();
    Say(*group, absl::StrFormat("done: test accuracy %.4f", correct));
    return FLAGS_out.empty() ? absl::OkStatus() : checkpoint::Save(FLAGS_out, checkpoint::StateDict(*net));
  };
  return world->Run(train_with);
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges(
      {{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1, kVirtualRanks}, {"kill_every", FLAGS_kill_every, 0}}));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return Train(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  const lockstep::ProgramUsage usage = {.source = __FILE__, .description = "Trains, whatever ranks die."};
  return ExampleMain(argc, argv, usage, {"epochs"}, Run);
}
