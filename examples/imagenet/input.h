// The images of a rank.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/fake_data.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/sampler/distributed_sampler.h"
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

// All images, listed and not read.
struct Images {
  std::unique_ptr<data::Dataset> train, validation;
  int64_t num_classes = 0;
};

// Has the training images, divided among the virtual ranks by VirtualRankSampler, shuffled and augmented; and the
// validation images, each in the share of one virtual rank:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto input, Input::Create(config));
//   LOCKSTEP_RETURN_IF_ERROR(input->Divide(place));
//   input->train_sampler->set_epoch(epoch);
//   LOCKSTEP_RETURN_IF_ERROR(input->train->Start(epoch));   // a step's batches of each virtual rank in turn
//
// The order and the augmentation depend on --seed (default: 0) and the epoch.
struct Input {
  // The batch size of a virtual rank. It is known before Create(), which may take long. InvalidArgument: there are more
  // ranks than virtual ranks, or the batch is too small to be divided.
  static absl::StatusOr<int64_t> BatchSizeOf(const TrainConfig& config, const Place& place) {
    const int parts = config.virtual_ranks;
    if (parts != 0 && parts < place.ranks) {
      return FlagError("virtual-ranks", parts, absl::StrCat("0, or at least the ", place.ranks, " ranks"));
    }
    if (place.batch_size != 0) return place.batch_size;
    const int64_t batch_size = config.batch_size / (parts > 0 ? parts : place.local_ranks);
    if (batch_size != 0) return batch_size;
    return FlagError("batch-size", config.batch_size,
                     absl::StrCat("an image for each of ", place.local_ranks, " ranks"));
  }

  // Returns the number of the optimizer's steps in an epoch with the ranks of `place`.
  int64_t StepsPerEpoch(const Place& place) const {
    const auto divided = [](int64_t size, int64_t by) { return (size + by - 1) / by; };
    const int64_t virtual_ranks = config.virtual_ranks, parts = virtual_ranks > 0 ? virtual_ranks : place.ranks;
    const int64_t batch = config.batch_size / (virtual_ranks > 0 ? virtual_ranks : place.local_ranks);
    const int64_t images_of_part = divided(static_cast<int64_t>(images.train->size()), parts);
    return divided(divided(images_of_part, std::max<int64_t>(batch, 1)), config.accum_steps);
  }

  // Lists the images. InvalidArgument: the classes of train/ and val/ differ, or there are more than --num-classes.
  // Other errors come from listing the folders.
  static absl::StatusOr<std::unique_ptr<Input>> Create(const TrainConfig& config) {
    LOCKSTEP_ASSIGN_OR_RETURN(Images images, config.dummy ? FakeImages(config) : ImagesOfFolders(config));
    return std::unique_ptr<Input>(new Input{config, std::move(images)});
  }

  // Takes this rank's images, from the beginning of epoch 0. Call it before the functions below, and again when the
  // ranks have changed. Errors are BatchSizeOf()'s.
  absl::Status Divide(const Place& place) {
    LOCKSTEP_ASSIGN_OR_RETURN(batch_size, BatchSizeOf(config, place));
    parts = config.virtual_ranks > 0 ? config.virtual_ranks : place.ranks;
    train.reset();
    validation.reset();
    sampler::DistributedSamplerOptions shuffled;
    shuffled.num_replicas = parts;
    shuffled.seed = config.seed.value_or(0);
    LOCKSTEP_ASSIGN_OR_RETURN(
        train_sampler, sampler::VirtualRankSampler::Create(images.train->size(), place.rank, place.ranks, shuffled,
                                                           config.accum_steps));
    LOCKSTEP_ASSIGN_OR_RETURN(validation_sampler,
                              sampler::EvaluationSampler::Create(images.validation->size(), {parts, first()}));
    data::LoaderOptions options;
    options.batch_size = batch_size;
    options.num_workers = (config.workers + place.local_ranks - 1) / place.local_ranks;
    options.seed = config.seed.value_or(0);
    options.max_skipped = config.max_skipped;
    options.device = place.device;
    LOCKSTEP_ASSIGN_OR_RETURN(train, data::Loader::Create(images.train.get(), &*train_sampler, options));
    LOCKSTEP_ASSIGN_OR_RETURN(validation, data::Loader::Create(images.validation.get(), &*validation_sampler, options));
    return absl::OkStatus();
  }

  // Starts a pass of `validation` over the share of one virtual rank.
  absl::Status StartValidation(int64_t virtual_rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(validation_sampler,
                              sampler::EvaluationSampler::Create(images.validation->size(), {parts, virtual_rank}));
    return validation->Start(/*epoch=*/0);
  }

  // The number of batches of a virtual rank in an epoch.
  int64_t BatchesPerEpoch() const { return Batches(train_sampler->num_samples() / train_sampler->num_virtual_ranks()); }
  // The number of these batches that were done before the sampler was restored.
  int64_t BatchesDone() const {
    return BatchesPerEpoch() - Batches(train_sampler->num_remaining() / train_sampler->num_virtual_ranks());
  }
  // The number of validation batches of all virtual ranks of this rank.
  int64_t ValidationBatches() const {
    int64_t batches = 0;
    for (int64_t v = first(); v < last(); ++v) batches += Batches((images.validation->size() - v + parts - 1) / parts);
    return batches;
  }

  // This rank has the virtual ranks [first(), last()).
  int64_t first() const { return train_sampler->first(); }
  int64_t last() const { return train_sampler->last(); }

  int64_t Batches(int64_t size) const { return (size + batch_size - 1) / batch_size; }

  const TrainConfig config;
  const Images images;
  int64_t parts = 1;       // the number of virtual ranks. Without --virtual-ranks each rank is one
  int64_t batch_size = 0;  // of a virtual rank. The last batch of an epoch may be smaller
  std::optional<sampler::VirtualRankSampler> train_sampler = {};
  std::optional<sampler::EvaluationSampler> validation_sampler = {};  // for one virtual rank
  std::unique_ptr<data::Loader> train = {}, validation = {};          // after the members that they borrow

 private:
  static absl::StatusOr<std::unique_ptr<data::Dataset>> MakeFake(const TrainConfig& config, int64_t size,
                                                                 int64_t classes) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        data::FakeData fake,
        data::FakeData::Create(
            {.size = size, .image_size = {3, config.image_size, config.image_size}, .num_classes = classes}));
    return std::make_unique<data::FakeData>(std::move(fake));
  }

  static absl::StatusOr<std::unique_ptr<data::Dataset>> MakeImages(data::ImageFolder folder, const TrainConfig& config,
                                                                   std::vector<data::Transform> steps) {
    data::TensorFormat format;
    format.mean = data::kImageNetMean;
    format.std = data::kImageNetStd;
    if (config.channels_last) format.memory_format = at::MemoryFormat::ChannelsLast;
    LOCKSTEP_ASSIGN_OR_RETURN(data::ImageTransform transform, data::ImageTransform::Create(std::move(steps), format));
    LOCKSTEP_ASSIGN_OR_RETURN(
        data::ImageDataset images,
        data::ImageDataset::Create(std::move(folder), std::move(transform), {.scaled_decode = config.scaled_decode}));
    return std::make_unique<data::ImageDataset>(std::move(images));
  }

  // "3 only in train/ (cat, dog, eel)", with three names at most.
  static std::string OnlyIn(absl::string_view split, const std::vector<std::string>& mine,
                            const std::vector<std::string>& others) {
    constexpr size_t kNamed = 3;
    std::vector<std::string> only;
    absl::c_copy_if(mine, std::back_inserter(only),
                    [&](const auto& name) { return !absl::c_linear_search(others, name); });
    const std::string count = absl::StrCat(only.size(), " only in ", split);
    if (only.empty()) return count;
    const bool all = only.size() <= kNamed;
    if (!all) only.resize(kNamed);
    return absl::StrCat(count, " (", absl::StrJoin(only, ", "), all ? ")" : ", ...)");
  }

  static absl::StatusOr<Images> FakeImages(const TrainConfig& config) {
    Images images;
    images.num_classes = config.num_classes == 0 ? 1000 : config.num_classes;
    LOCKSTEP_ASSIGN_OR_RETURN(images.train, MakeFake(config, config.dummy_train_images, images.num_classes));
    LOCKSTEP_ASSIGN_OR_RETURN(images.validation, MakeFake(config, config.dummy_val_images, images.num_classes));
    return images;
  }

  static absl::StatusOr<Images> ImagesOfFolders(const TrainConfig& config) {
    LOCKSTEP_ASSIGN_OR_RETURN(data::ImageFolder train, data::ImageFolder::Create(absl::StrCat(config.data, "/train")));
    LOCKSTEP_ASSIGN_OR_RETURN(data::ImageFolder validation,
                              data::ImageFolder::Create(absl::StrCat(config.data, "/val")));
    if (train.classes() != validation.classes()) {
      return absl::InvalidArgumentError(absl::StrCat(config.data, ": train/ and val/ have different classes: ",
                                                     OnlyIn("train/", train.classes(), validation.classes()), ", ",
                                                     OnlyIn("val/", validation.classes(), train.classes())));
    }
    Images images;
    const auto classes = static_cast<int64_t>(train.classes().size());
    images.num_classes = config.num_classes == 0 ? classes : config.num_classes;
    if (images.num_classes < classes) {
      return FlagError("num-classes", config.num_classes, absl::StrCat("the ", classes, " of ", config.data));
    }
    const int64_t size = config.image_size;
    LOCKSTEP_ASSIGN_OR_RETURN(images.train, MakeImages(std::move(train), config,
                                                       {data::RandomResizedCrop(size), data::RandomHorizontalFlip()}));
    LOCKSTEP_ASSIGN_OR_RETURN(images.validation, MakeImages(std::move(validation), config,
                                                            {data::Resize(size * 256 / 224), data::CenterCrop(size)}));
    return images;
  }
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_INPUT_H_
