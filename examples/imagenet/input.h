// The images of a rank.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"

namespace lockstep::examples::imagenet {

// The position of a rank in the job.
struct Place {
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;             // on this node; they share --batch-size and --workers
  c10::Device device = c10::kCPU;  // device of the batches
};

// The training images, divided among the ranks by DistributedSampler, shuffled and augmented; and the validation
// images, each on one rank:
//
//   input->sampler().set_epoch(epoch);
//   LOCKSTEP_RETURN_IF_ERROR(input->train().Start(epoch));
//
// The order and the augmentation depend on --seed (default: 0) and the epoch.
class Input {
 public:
  // Reads no image. InvalidArgument: the batch is too small to be divided, the classes of train/ and val/ differ, or
  // there are more than --num-classes. Other errors come from listing the folders.
  static absl::StatusOr<std::unique_ptr<Input>> Create(const TrainConfig& config, const Place& place);

  int64_t num_classes() const { return num_classes_; }
  // Batch size of this rank. The last batch of an epoch may be smaller.
  int64_t batch_size() const { return batch_size_; }
  int64_t train_images() const { return train_->size(); }
  int64_t validation_images() const { return validation_->size(); }

  sampler::DistributedSampler& sampler() { return sampler_; }
  data::Loader& train() { return *train_loader_; }
  data::Loader& validation() { return *validation_loader_; }

  // Numbers of batches of this rank: in a whole epoch, and in the rest of a restored one.
  int64_t BatchesPerEpoch() const { return Batches(sampler_.num_samples()); }
  int64_t BatchesRemaining() const { return Batches(sampler_.num_remaining()); }
  int64_t ValidationBatches() const { return Batches(validation_sampler_.num_samples()); }

 private:
  struct Data {
    std::unique_ptr<data::Dataset> train, validation;
    int64_t num_classes = 0;
  };
  static absl::StatusOr<Data> Fake(const TrainConfig& config);
  static absl::StatusOr<Data> Folders(const TrainConfig& config);

  Input(Data data, int64_t batch_size, sampler::DistributedSampler sampler,
        sampler::EvaluationSampler validation_sampler);
  absl::Status MakeLoaders(const TrainConfig& config, const Place& place);
  int64_t Batches(int64_t images) const { return (images + batch_size_ - 1) / batch_size_; }

  std::unique_ptr<data::Dataset> train_, validation_;
  int64_t num_classes_;
  int64_t batch_size_;
  sampler::DistributedSampler sampler_;
  sampler::EvaluationSampler validation_sampler_;
  std::unique_ptr<data::Loader> train_loader_, validation_loader_;  // after the members that they borrow
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
