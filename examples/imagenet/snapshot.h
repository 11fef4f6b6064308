// A run's checkpoints: files that Python's ImageNet example reads, and reads back.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::examples::imagenet {

// How far a run has come.
struct Position {
  int64_t epoch = 0;     // the one that goes on, or begins, from here; counted from 0
  double best_acc1 = 0;  // the best top-1 of a validation so far, in percent
};

// Always the newest, and that of the best validation.
std::string SnapshotPath(const std::string& directory);
std::string BestPath(const std::string& directory);

// Replaces checkpoint.pt in `directory` and, if `is_best`, model_best.pt by the same. Each is always whole. Keys: those
// of Python's example (epoch, arch, state_dict, best_acc1, optimizer, scheduler; without a "module." before the
// parameters' names), "sampler", where in the epoch the run is, and what Learner::State() has besides.
absl::Status SaveSnapshot(const std::string& directory, const std::string& arch, const Position& position,
                          const Learner& learner, const sampler::SamplerState& sampler, bool is_best);

// Puts `learner` and `sampler` where the file says; without a sampler (nullptr) only the weights, for what does not
// train on. A file of Python's example has no "sampler": its epoch begins. InvalidArgument, naming what differs, for
// another arch, dataset or seed; else what Load says. The number of ranks may be another.
absl::StatusOr<Position> LoadSnapshot(const std::string& path, const std::string& arch, Learner& learner,
                                      sampler::DistributedSampler* sampler);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
