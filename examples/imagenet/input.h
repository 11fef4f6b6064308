// The images of a rank.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::examples::imagenet {

// The position of a rank in the job.
struct Place {
  int rank = 0;
  int ranks = 1;
  int local_ranks = 1;             // on this node; they share --workers and, without --virtual-ranks, --batch-size
  c10::Device device = c10::kCPU;  // device of the batches
  int64_t batch_size = 0;          // of a virtual rank. 0: this rank's share of --batch-size
};

// Has the training images, divided among the virtual ranks by VirtualRankSampler, shuffled and augmented; and the
// validation images, each in the share of one virtual rank:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto input, Input::Create(config));
//   LOCKSTEP_RETURN_IF_ERROR(input->Divide(place));
//   input->sampler().set_epoch(epoch);
//   LOCKSTEP_RETURN_IF_ERROR(input->train().Start(epoch));   // a step's batches of each virtual rank in turn
//
// The order and the augmentation depend on --seed (default: 0) and the epoch.
class Input {
 public:
  // The batch size of a virtual rank. It is known before Create(), which may take long. InvalidArgument: there are more
  // ranks than virtual ranks, or the batch is too small to be divided.
  static absl::StatusOr<int64_t> BatchSizeOf(const TrainConfig& config, const Place& place);

  // Lists the images, and reads none. InvalidArgument: the classes of train/ and val/ differ, or there are more than
  // --num-classes. Other errors come from listing the folders.
  static absl::StatusOr<std::unique_ptr<Input>> Create(const TrainConfig& config);

  // Takes this rank's images, from the beginning of epoch 0. Call it before the functions below, and again when the
  // ranks have changed. Errors are BatchSizeOf()'s.
  absl::Status Divide(const Place& place);

  int64_t num_classes() const { return data_.num_classes; }
  // The number of virtual ranks. Without --virtual-ranks each rank is one. This rank has the virtual ranks [first(),
  // last()).
  int64_t parts() const { return parts_; }
  int64_t first() const { return sampler_->first(); }
  int64_t last() const { return sampler_->last(); }
  // Batch size of a virtual rank. The last batch of an epoch may be smaller.
  int64_t batch_size() const { return batch_size_; }
  int64_t train_images() const { return data_.train->size(); }
  int64_t validation_images() const { return data_.validation->size(); }

  sampler::VirtualRankSampler& sampler() { return *sampler_; }
  data::Loader& train() { return *train_loader_; }
  data::Loader& validation() { return *validation_loader_; }

  // Starts a pass of validation() over the share of one virtual rank.
  absl::Status StartValidation(int64_t virtual_rank);

  // The number of batches of a virtual rank in an epoch.
  int64_t BatchesPerEpoch() const { return Batches(sampler_->num_samples() / sampler_->num_virtual_ranks()); }
  // The number of these batches that were done before sampler() was restored.
  int64_t BatchesDone() const {
    return BatchesPerEpoch() - Batches(sampler_->num_remaining() / sampler_->num_virtual_ranks());
  }
  // The number of batches of all virtual ranks of this rank.
  int64_t ValidationBatches() const;

 private:
  struct Data {
    std::unique_ptr<data::Dataset> train, validation;
    int64_t num_classes = 0;
  };
  static absl::StatusOr<Data> Fake(const TrainConfig& config);
  static absl::StatusOr<Data> Folders(const TrainConfig& config);

  Input(const TrainConfig& config, Data data);
  absl::Status MakeLoaders(const Place& place);
  int64_t Batches(int64_t images) const { return (images + batch_size_ - 1) / batch_size_; }

  const TrainConfig config_;
  const Data data_;
  int64_t parts_ = 1;
  int64_t batch_size_ = 0;
  std::optional<sampler::VirtualRankSampler> sampler_;
  std::optional<sampler::EvaluationSampler> validation_sampler_;    // for one virtual rank
  std::unique_ptr<data::Loader> train_loader_, validation_loader_;  // after the members that they borrow
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
