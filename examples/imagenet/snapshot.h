// The contents of a run's checkpoints. Python's ImageNet example can read them, and its checkpoints can be read here.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/sampler/sampler_state.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::examples::imagenet {

// The progress of a run.
struct Position {
  int64_t epoch = 0;     // the epoch that continues or begins here, counted from 0
  double best_acc1 = 0;  // best top-1 accuracy of a validation so far, in percent
};

// What a checkpoint has beside the learner's state and the position in the epoch.
struct Restored {
  Position position;
  at::Tensor epoch_sums;  // undefined if the checkpoint has none, as Python's
};

// The contents of a checkpoint. Its keys are the keys of Python's example (epoch, arch, state_dict, best_acc1,
// optimizer, scheduler; parameter names have no "module." prefix), "sampler" (the position in the epoch),
// "virtual_ranks" (the flag's value), "epoch_sums" (PassMeters::TakeSums() of the epoch so far, of all ranks), and the other entries of Learner::State(), whose memory they share.
absl::StatusOr<checkpoint::Value> Snapshot(const TrainConfig& config, const Position& position, const Learner& learner,
                                           const sampler::SamplerState& sampler, const at::Tensor& epoch_sums);

// Restores `learner` and `sampler` from such contents. Without a sampler (nullptr) it restores only the weights, for
// evaluation. A checkpoint of Python's example has no "sampler", so its epoch starts from the beginning.
// InvalidArgument, naming the difference: it is from another arch, dataset or seed, or, with a sampler, from another
// number of virtual ranks. The number of ranks may differ.
absl::StatusOr<Restored> Restore(const checkpoint::Value& snapshot, const TrainConfig& config, Learner& learner,
                                 sampler::VirtualRankSampler* sampler);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
