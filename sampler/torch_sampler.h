// Samplers for LibTorch's own DataLoader, and LibTorch's samplers for data::Loader.

#ifndef LOCKSTEP_SAMPLER_TORCH_SAMPLER_H_
#define LOCKSTEP_SAMPLER_TORCH_SAMPLER_H_

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/sampler/internal/archive.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep::sampler {

// A torch::data sampler over a copy of any Sampler, of this folder or of yours:
//
//   absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(60000, {.num_replicas = 2, .rank = rank});
//   auto loader = torch::data::make_data_loader(dataset, TorchSampler(*sampler), 64);
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     sampler->set_epoch(epoch);
//     for (auto& batch : *loader) Train(batch);
//   }
//
// The header torch/data/dataloader.h declares make_data_loader. The DataLoader has a copy of the copy. Copies of a
// DistributedSampler or a WeightedSampler share the epoch and the restored place, so set_epoch() and Restore() of the
// original reach the copy in the DataLoader. Thread safety is that of the sampler.
//
// reset() and next() are the sampler's.
template <typename S>
class TorchSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit TorchSampler(S sampler) : sampler_(std::move(sampler)) {}

  const S& sampler() const { return sampler_; }

  void reset(std::optional<size_t> new_size = std::nullopt) override { sampler_.reset(new_size); }
  std::optional<std::vector<size_t>> next(size_t batch_size) override { return sampler_.next(batch_size); }

  // save() writes the place after the indices that next() has returned. After load() the next reset() or next()
  // continues from there, once.
  //
  // - DistributedSampler, WeightedSampler: writes the State() there, and load() continues from it like Restore().
  // - EvaluationSampler: writes how many indices next() has returned. Each rank saves and loads separately.
  // - RandomSampler: writes that and the generator's state at the start of the epoch. load() restores the generator
  //   (the caller's too, if one was given) to its state after these indices, by drawing them again. With a given
  //   generator, later epochs are the same too. Without one they depend on LibTorch's default generator, which is not
  //   saved here. If other code drew from the generator during that epoch, load() cannot detect it. Call load() before
  //   a DataLoader copies the sampler.
  //
  // load() throws c10::ValueError and changes nothing if the saved sampler differs: in size or options, except that
  // Restore() allows another number of ranks. It throws c10::Error if the archive lacks a field or a field has another
  // type.
  //
  // For a class of yours they call its members save(archive) and load(archive). If it has none, they throw
  // c10::NotImplementedError.
  void save(torch::serialize::OutputArchive& archive) const override { internal::Archive::Save(sampler_, archive); }
  void load(torch::serialize::InputArchive& archive) override { internal::Archive::Load(sampler_, archive); }

 private:
  S sampler_;
};

// A Sampler over a torch::data sampler, which is borrowed and must outlive it. data::Loader thus takes any class that
// derives from torch::data::samplers::Sampler<>.
//
//   torch::data::samplers::SequentialSampler in_order(dataset.size());
//   SamplerFromTorch sampler(&in_order);
//   LOCKSTEP_ASSIGN_OR_RETURN(auto loader, data::Loader::Create(&dataset, &sampler, {.batch_size = 64}));
class SamplerFromTorch : public Sampler {
 public:
  explicit SamplerFromTorch(torch::data::samplers::Sampler<>* sampler) : sampler_(sampler) {}

  void reset(std::optional<size_t> new_size = std::nullopt) override { sampler_->reset(new_size); }
  std::optional<std::vector<size_t>> next(size_t batch_size) override { return sampler_->next(batch_size); }

 private:
  torch::data::samplers::Sampler<>* sampler_;
};

}  // namespace lockstep::sampler

#endif  // LOCKSTEP_SAMPLER_TORCH_SAMPLER_H_
