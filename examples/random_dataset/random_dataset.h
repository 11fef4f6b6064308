// Random samples to train on.

#ifndef LOCKSTEP_EXAMPLES_RANDOM_DATASET_RANDOM_DATASET_H_
#define LOCKSTEP_EXAMPLES_RANDOM_DATASET_RANDOM_DATASET_H_

#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::examples {

// Some samples, one in each row, and their indices.
struct RandomBatch {
  std::vector<int64_t> indices;
  at::Tensor inputs;  // float32 [batch, features]
  at::Tensor labels;  // float32 [batch, 1]
};

// `size` samples of `features` normally distributed numbers. They depend only on the seed. A sample's label is the sum
// of its features, so there is something to learn. For torch::data's loaders. Copies share memory.
//
//   auto loader = torch::data::make_data_loader(RandomDataset(100, 5, /*seed=*/0), TorchSampler(sampler), 30);
//   for (const RandomBatch& batch : *loader) Train(batch.inputs, batch.labels);
class RandomDataset : public torch::data::datasets::BatchDataset<RandomDataset, RandomBatch> {
 public:
  RandomDataset(int64_t size, int64_t features, uint64_t seed);

  RandomBatch get_batch(c10::ArrayRef<size_t> indices) override;
  std::optional<size_t> size() const override { return static_cast<size_t>(inputs_.size(0)); }

 private:
  at::Tensor inputs_;
};

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANDOM_DATASET_RANDOM_DATASET_H_
