// A place in a training run, as a checkpoint file that Python's torch.load reads too.

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

// How far training has come: whole epochs, and steps of the one after them.
struct Position {
  int64_t epoch = 0;
  int64_t step = 0;
  ddp::BucketLayout buckets;  // DDP's, where there is one and it has taken a step
};

// The file that a run keeps in its checkpoint folder: always the newest.
std::string SnapshotPath(const std::string& directory);

// Replaces the file. `sampler` is at `position`. Keys: arch, epoch, step, state_dict, optimizer, sampler,
// bucket_layout.
absl::Status SaveSnapshot(const std::string& path, const Position& position, const Net& net,
                          const torch::optim::SGD& optimizer, const sampler::SamplerState& sampler);

// Puts all three where the file says, and returns where that is. NotFound without a file; InvalidArgument, naming what
// differs, for one of another model, dataset or seed, or in mid-epoch with other than `batch_size` images a step. The
// number of ranks may differ; then there are no buckets.
absl::StatusOr<Position> LoadSnapshot(const std::string& path, int64_t batch_size, Net& net,
                                      torch::optim::SGD& optimizer, sampler::DistributedSampler& sampler);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_SNAPSHOT_H_
