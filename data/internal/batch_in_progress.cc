#include "lockstep/data/internal/batch_in_progress.h"

#include <ATen/ops/tensor.h>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data::internal {

void BatchInProgress::Allocate(const torch::data::Example<>& example, BatchMemory& memory) {
  data_ = memory.Stack(example.data, size());
  target_ = memory.Stack(example.target, size());
}

void BatchInProgress::Fill(size_t place, const Dataset& dataset, at::Generator& random) {
  const absl::Status thrown = TorchStatus(absl::StrCat("example ", index(place)), [&] {
    at::Tensor data = data_.select(0, place), target = target_.select(0, place);
    errors_[place] = dataset.GetInto(index(place), random, data, target);
  });
  if (!thrown.ok()) errors_[place] = thrown;
}

torch::data::Example<> BatchInProgress::Take() {
  if (!data_.defined()) return {at::Tensor(), at::Tensor()};
  std::vector<int64_t> good;
  for (size_t place = 0; place < size(); ++place)
    if (errors_[place].ok()) good.push_back(place);
  if (good.empty()) return {at::Tensor(), at::Tensor()};
  if (good.size() == size()) return {data_, target_};
  const at::Tensor places = at::tensor(good);
  return {data_.index_select(0, places), target_.index_select(0, places)};
}

}  // namespace lockstep::data::internal
