#include "lockstep/data/fake_data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data {
namespace {

absl::Status Invalid(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat("FakeData: expected ", expected, ", found ", found));
}

// Rounds to bytes, since torchvision converts the noise to a PIL image first.
Example Draw(const FakeDataOptions& options, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor noise = at::randn(options.image_size, generator);
  const at::Tensor target = at::randint(0, options.num_classes, {1}, generator, at::kLong);
  return {noise.mul_(255).to(at::kByte).to(at::kFloat).div_(255), target[0]};
}

}  // namespace

absl::StatusOr<FakeData> FakeData::Create(const FakeDataOptions& options) {
  const std::array<int64_t, 3>& image = options.image_size;
  if (options.size < 0) return Invalid("a size of 0 or more", absl::StrCat(options.size));
  if (*std::min_element(image.begin(), image.end()) < 1)
    return Invalid("a positive image_size", absl::StrJoin(image, " x "));
  if (options.num_classes < 1) return Invalid("at least 1 class", absl::StrCat(options.num_classes));
  return FakeData(options);
}

absl::StatusOr<Example> FakeData::Get(int64_t index, at::Generator&) const {
  if (index < 0 || index >= options_.size) {
    return absl::OutOfRangeError(
        absl::StrCat("FakeData: expected an index in [0, ", options_.size, "), found ", index));
  }
  return TorchStatusOr(absl::StrCat("FakeData: example ", index),
                       [&] { return Draw(options_, index + options_.random_offset); });
}

}  // namespace lockstep::data
