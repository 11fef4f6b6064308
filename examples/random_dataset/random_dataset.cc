#include "lockstep/examples/random_dataset/random_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>

namespace lockstep::examples {

RandomDataset::RandomDataset(int64_t size, int64_t features, uint64_t seed)
    : inputs_(at::randn({size, features}, at::detail::createCPUGenerator(seed))) {}

RandomBatch RandomDataset::get_batch(c10::ArrayRef<size_t> indices) {
  RandomBatch batch;
  batch.indices.assign(indices.begin(), indices.end());
  const auto rows = at::from_blob(batch.indices.data(), {static_cast<int64_t>(batch.indices.size())}, at::kLong);
  batch.inputs = inputs_.index_select(0, rows);
  batch.labels = batch.inputs.sum(1, /*keepdim=*/true);
  return batch;
}

}  // namespace lockstep::examples
