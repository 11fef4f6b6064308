#include "lockstep/examples/imagenet/input.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/data/fake_data.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_transform.h"
#include "lockstep/data/transforms.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::examples::imagenet {
namespace {

absl::StatusOr<std::unique_ptr<data::Dataset>> MakeFake(const TrainConfig& config, int64_t size, int64_t classes) {
  data::FakeDataOptions options;
  options.size = size;
  options.image_size = {3, config.image_size, config.image_size};
  options.num_classes = classes;
  LOCKSTEP_ASSIGN_OR_RETURN(data::FakeData fake, data::FakeData::Create(options));
  return std::make_unique<data::FakeData>(std::move(fake));
}

absl::StatusOr<std::unique_ptr<data::Dataset>> MakeImages(data::ImageFolder folder, const TrainConfig& config,
                                                          std::vector<data::Transform> steps) {
  data::TensorFormat format;
  format.mean = data::kImageNetMean;
  format.std = data::kImageNetStd;
  if (config.channels_last) format.memory_format = at::MemoryFormat::ChannelsLast;
  LOCKSTEP_ASSIGN_OR_RETURN(data::ImageTransform transform, data::ImageTransform::Create(std::move(steps), format));
  data::ImageDatasetOptions options;
  options.scaled_decode = config.scaled_decode;
  LOCKSTEP_ASSIGN_OR_RETURN(data::ImageDataset images,
                            data::ImageDataset::Create(std::move(folder), std::move(transform), options));
  return std::make_unique<data::ImageDataset>(std::move(images));
}

// "3 only in train/ (cat, dog, eel)", with three names at most.
std::string OnlyIn(absl::string_view split, const std::vector<std::string>& mine,
                   const std::vector<std::string>& others) {
  constexpr size_t kNamed = 3;
  const std::set<std::string> other(others.begin(), others.end());
  std::vector<std::string> only;
  std::copy_if(mine.begin(), mine.end(), std::back_inserter(only),
               [&](const auto& name) { return !other.count(name); });
  const std::string count = absl::StrCat(only.size(), " only in ", split);
  if (only.empty()) return count;
  const bool all = only.size() <= kNamed;
  if (!all) only.resize(kNamed);
  return absl::StrCat(count, " (", absl::StrJoin(only, ", "), all ? ")" : ", ...)");
}

}  // namespace

absl::StatusOr<Input::Data> Input::Fake(const TrainConfig& config) {
  Data data;
  data.num_classes = config.num_classes == 0 ? 1000 : config.num_classes;
  LOCKSTEP_ASSIGN_OR_RETURN(data.train, MakeFake(config, config.dummy_train_images, data.num_classes));
  LOCKSTEP_ASSIGN_OR_RETURN(data.validation, MakeFake(config, config.dummy_val_images, data.num_classes));
  return data;
}

absl::StatusOr<Input::Data> Input::Folders(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(data::ImageFolder train, data::ImageFolder::Create(absl::StrCat(config.data, "/train")));
  LOCKSTEP_ASSIGN_OR_RETURN(data::ImageFolder validation, data::ImageFolder::Create(absl::StrCat(config.data, "/val")));
  if (train.classes() != validation.classes()) {
    return absl::InvalidArgumentError(absl::StrCat(config.data, ": train/ and val/ have different classes: ",
                                                   OnlyIn("train/", train.classes(), validation.classes()), ", ",
                                                   OnlyIn("val/", validation.classes(), train.classes())));
  }
  Data data;
  const auto classes = static_cast<int64_t>(train.classes().size());
  data.num_classes = config.num_classes == 0 ? classes : config.num_classes;
  if (data.num_classes < classes) {
    return FlagError("num-classes", config.num_classes, absl::StrCat("the ", classes, " of ", config.data));
  }
  const int64_t size = config.image_size;
  LOCKSTEP_ASSIGN_OR_RETURN(
      data.train, MakeImages(std::move(train), config, {data::RandomResizedCrop(size), data::RandomHorizontalFlip()}));
  LOCKSTEP_ASSIGN_OR_RETURN(data.validation, MakeImages(std::move(validation), config,
                                                        {data::Resize(size * 256 / 224), data::CenterCrop(size)}));
  return data;
}

absl::StatusOr<int64_t> Input::BatchSizeOf(const TrainConfig& config, const Place& place) {
  const int parts = config.virtual_ranks;
  if (parts != 0 && parts < place.ranks) {
    return FlagError("virtual-ranks", parts, absl::StrCat("0, or at least the ", place.ranks, " ranks"));
  }
  if (place.batch_size != 0) return place.batch_size;
  const int64_t batch_size = config.batch_size / (parts > 0 ? parts : place.local_ranks);
  if (batch_size != 0) return batch_size;
  return FlagError("batch-size", config.batch_size, absl::StrCat("an image for each of ", place.local_ranks, " ranks"));
}

absl::StatusOr<std::unique_ptr<Input>> Input::Create(const TrainConfig& config) {
  LOCKSTEP_ASSIGN_OR_RETURN(Data data, config.dummy ? Fake(config) : Folders(config));
  return std::unique_ptr<Input>(new Input(config, std::move(data)));
}

Input::Input(const TrainConfig& config, Data data) : config_(config), data_(std::move(data)) {}

absl::Status Input::Divide(const Place& place) {
  LOCKSTEP_ASSIGN_OR_RETURN(batch_size_, BatchSizeOf(config_, place));
  parts_ = config_.virtual_ranks > 0 ? config_.virtual_ranks : place.ranks;
  train_loader_.reset();
  validation_loader_.reset();
  sampler::DistributedSamplerOptions options;
  options.num_replicas = parts_;
  options.seed = config_.seed.value_or(0);
  LOCKSTEP_ASSIGN_OR_RETURN(sampler_, sampler::VirtualRankSampler::Create(train_images(), place.rank, place.ranks,
                                                                          options, config_.accum_steps));
  LOCKSTEP_ASSIGN_OR_RETURN(validation_sampler_,
                            sampler::EvaluationSampler::Create(validation_images(), {parts_, first()}));
  return MakeLoaders(place);
}

absl::Status Input::MakeLoaders(const Place& place) {
  data::LoaderOptions options;
  options.batch_size = batch_size_;
  options.num_workers = (config_.workers + place.local_ranks - 1) / place.local_ranks;
  options.seed = config_.seed.value_or(0);
  options.max_skipped = config_.max_skipped;
  options.device = place.device;
  LOCKSTEP_ASSIGN_OR_RETURN(train_loader_, data::Loader::Create(data_.train.get(), &*sampler_, options));
  LOCKSTEP_ASSIGN_OR_RETURN(validation_loader_,
                            data::Loader::Create(data_.validation.get(), &*validation_sampler_, options));
  return absl::OkStatus();
}

absl::Status Input::StartValidation(int64_t virtual_rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(validation_sampler_,
                            sampler::EvaluationSampler::Create(validation_images(), {parts_, virtual_rank}));
  return validation_loader_->Start(/*epoch=*/0);
}

int64_t Input::ValidationBatches() const {
  int64_t batches = 0;
  for (int64_t v = first(); v < last(); ++v) batches += Batches((validation_images() - v + parts_ - 1) / parts_);
  return batches;
}

}  // namespace lockstep::examples::imagenet
