// Datasets for LibTorch's own DataLoader.

#ifndef LOCKSTEP_DATA_TORCH_DATASET_H_
#define LOCKSTEP_DATA_TORCH_DATASET_H_

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"

namespace lockstep::data {

// A torch::data dataset over any Dataset, which is borrowed and must outlive the copies of this object:
//
//   auto mapped = data::TorchDataset(&dataset).map(torch::data::transforms::Stack<>());
//   auto loader = torch::data::make_data_loader(std::move(mapped), sampler::TorchSampler(*sampler), 64);
//   for (torch::data::Example<>& batch : *loader) Train(batch.data, batch.target);
//
// The headers torch/data/dataloader.h, datasets/map.h and transforms/stack.h declare the names in torch::data.
//
// Examples equal data::Loader's with the same seed and epoch, augmentation included. Copies share the epoch, so
// set_epoch() reaches the copy in a DataLoader. Several threads may call everything except assignment at once.
class TorchDataset : public torch::data::datasets::Dataset<TorchDataset> {
 public:
  explicit TorchDataset(const data::Dataset* dataset, int64_t seed = 0)
      : dataset_(dataset), seed_(seed), epoch_(std::make_shared<std::atomic<int64_t>>(0)) {}

  // Sets the epoch, which determines the augmentation of the examples that get() returns from now on.
  void set_epoch(int64_t epoch) { *epoch_ = epoch; }

  // Throws StatusError with the status of the dataset's Get().
  torch::data::Example<> get(size_t index) override;
  std::optional<size_t> size() const override;

 private:
  const data::Dataset* dataset_;
  int64_t seed_;
  std::shared_ptr<std::atomic<int64_t>> epoch_;
};

// A torch::data dataset over a copy of a dataset that makes whole batches, such as FashionMnist: one with `Example
// Batch(at::ArrayRef<int64_t> indices) const` and `int64_t size() const`.
//
//   auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(*sampler), 64);
//   for (data::Example& batch : *loader) Train(batch.data, batch.target);
//
// It does not support map(), since LibTorch's map() needs batches that are containers.
template <typename D>
class TorchBatchDataset : public torch::data::datasets::BatchDataset<TorchBatchDataset<D>, Example> {
 public:
  explicit TorchBatchDataset(D dataset) : dataset_(std::move(dataset)) {}

  Example get_batch(at::ArrayRef<size_t> indices) override {
    return dataset_.Batch(std::vector<int64_t>(indices.begin(), indices.end()));
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(dataset_.size()); }

 private:
  D dataset_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TORCH_DATASET_H_
