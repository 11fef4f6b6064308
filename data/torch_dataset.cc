#include "lockstep/data/torch_dataset.h"

#include <ATen/CPUGeneratorImpl.h>

#include "absl/status/statusor.h"
#include "lockstep/base/seed.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data {

torch::data::Example<> TorchDataset::get(size_t index) {
  at::Generator random = at::detail::createCPUGenerator(SeedOf(seed_, *epoch_, static_cast<int64_t>(index)));
  const absl::StatusOr<Example> example = dataset_->Get(static_cast<int64_t>(index), random);
  ThrowIfError(example.status());
  return {example->data, example->target};
}

std::optional<size_t> TorchDataset::size() const { return static_cast<size_t>(dataset_->size()); }

}  // namespace lockstep::data
