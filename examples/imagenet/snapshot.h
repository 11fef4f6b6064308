// A run's checkpoints, in files that Python's ImageNet example can read. It also reads files of that example.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/examples/imagenet/learner.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::examples::imagenet {

// The progress of a run.
struct Position {
  int64_t epoch = 0;     // the epoch that continues or begins here, counted from 0
  double best_acc1 = 0;  // best top-1 accuracy of a validation so far, in percent
};

// The newest checkpoint, and that of the best validation.
std::string SnapshotPath(const std::string& directory);
std::string BestPath(const std::string& directory);

// Replaces checkpoint.pt in `directory` and, if `is_best`, model_best.pt by the same contents. Both are intact at every
// moment. Keys: those of Python's example (epoch, arch, state_dict, best_acc1, optimizer, scheduler; parameter names
// have no "module." prefix), "sampler" (the position in the epoch), and the other entries of Learner::State().
absl::Status SaveSnapshot(const std::string& directory, const std::string& arch, const Position& position,
                          const Learner& learner, const sampler::SamplerState& sampler, bool is_best);

// Restores `learner` and `sampler` from the file. Without a sampler (nullptr) it restores only the weights, for
// evaluation. A file of Python's example has no "sampler", so its epoch starts from the beginning. InvalidArgument,
// naming the difference: the file is from another arch, dataset or seed. Other errors are those of Load. The number of
// ranks may differ.
absl::StatusOr<Position> LoadSnapshot(const std::string& path, const std::string& arch, Learner& learner,
                                      sampler::DistributedSampler* sampler);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_SNAPSHOT_H_
