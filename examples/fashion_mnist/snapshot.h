// Saves and loads a training run's state, in a file that Python's torch.load can read too.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_SNAPSHOT_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_SNAPSHOT_H_

#include <torch/optim/sgd.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/ddp/bucket_layout.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::examples {

// The progress of a training: whole epochs, and steps of the next epoch.
struct Position {
  int64_t epoch = 0;
  int64_t step = 0;
  ddp::BucketLayout buckets;  // DDP's, if it is used and has taken a step
};

// The file in the checkpoint folder. It always holds the newest state.
std::string SnapshotPath(const std::string& directory);

// Replaces the file. `sampler` must be the state at `position`. Keys: arch, epoch, step, state_dict, optimizer,
// sampler, bucket_layout.
absl::Status SaveSnapshot(const std::string& path, const Position& position, const Net& net,
                          const torch::optim::SGD& optimizer, const sampler::SamplerState& sampler);

// Restores all three from the file and returns its position. NotFound: there is no file. InvalidArgument, naming the
// difference: the file is from another model, dataset or seed, or it is in the middle of an epoch with another
// `batch_size` than this one. The number of ranks may differ; `buckets` is then empty.
absl::StatusOr<Position> LoadSnapshot(const std::string& path, int64_t batch_size, Net& net,
                                      torch::optim::SGD& optimizer, sampler::DistributedSampler& sampler);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_SNAPSHOT_H_
