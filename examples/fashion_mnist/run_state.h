// The state of a training run between two steps: the contents of its checkpoints, and what its ranks keep when one
// dies.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_RUN_STATE_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_RUN_STATE_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/sampler/sampler_state.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::examples {

// How far the run is, on every rank alike.
struct Progress {
  int64_t step = 0;             // steps that are done
  sampler::SamplerState place;  // in the training images
  // The sum of the losses of this epoch's steps, and their number.
  double losses = 0;
  int64_t loss_steps = 0;
};

// Where and when this rank began an epoch. The groups that it is in after a rank has died leave it as it is.
struct EpochBegin {
  int64_t epoch = -1, consumed = 0;
  absl::Time time;
};

struct RunState {
  // The flags that must be the same when a run is resumed.
  int64_t batch_size, virtual_ranks;
  bool adamw;  // rather than SGD

  Net net{};
  double learning_rate = adamw ? 1e-3 : kLearningRate;
  std::unique_ptr<torch::optim::Optimizer> optimizer = MakeOptimizer();
  Progress progress{};
  EpochBegin begin{};

  // Checks that the flags fit each other and the number of ranks that the launcher has started: --virtual_ranks must be
  // enough, and --batch_size a multiple. In an `elastic` run without virtual ranks, the ranks that are left may not
  // divide it; then a step has some images fewer. Not collective. Errors: FlagError(), or the environment's error.
  absl::Status CheckFlags(bool elastic) const;

  // Saves a checkpoint. `ddp` has wrapped `net` for `ranks` ranks. Every rank must call it. Without a manager (nullptr)
  // it does nothing.
  absl::Status Save(checkpoint::Manager* manager, const ddp::DistributedDataParallel<Net>& ddp, int ranks) const;

  // Restores the newest checkpoint and returns its file, or "" if there is none yet. Without virtual ranks it gives
  // `ddp` the layout of its buckets, which affects rounding with many ranks. Gives `sampler` its place. Every rank must
  // call it, before the first step. A checkpoint of Python has no losses. InvalidArgument, which names the file and the
  // difference: the checkpoint is from another model or other data, or has other flags. NotFound: an entry is missing.
  // Other errors are the manager's.
  absl::StatusOr<std::string> Resume(checkpoint::Manager& manager, ddp::DistributedDataParallel<Net>& ddp, int ranks,
                                     sampler::VirtualRankSampler& sampler);

 private:
  std::unique_ptr<torch::optim::Optimizer> MakeOptimizer() const {
    if (adamw) return std::make_unique<optim::AdamW>(net->parameters(), optim::AdamWOptions(learning_rate));
    return std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions(learning_rate).momentum(kMomentum));
  }
  absl::Status Restore(const checkpoint::Value& saved, ddp::DistributedDataParallel<Net>& ddp, int ranks);
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_RUN_STATE_H_
