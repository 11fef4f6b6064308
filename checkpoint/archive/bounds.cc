#include "lockstep/checkpoint/archive/bounds.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::archive {
namespace {

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

absl::Status CheckNumbers(int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  constexpr size_t kMaxDimensions = 64;
  if (sizes.size() != strides.size()) return Malformed("a tensor's sizes and strides do not fit");
  if (sizes.size() > kMaxDimensions) {
    return Malformed(
        absl::StrCat("a tensor has ", sizes.size(), " dimensions; at most ", kMaxDimensions, " are supported"));
  }
  int64_t count = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) return Malformed("a tensor has a negative size or stride");
    // Zero-sized dimensions count as one, so that no product of the others overflows in LibTorch.
    if (__builtin_mul_overflow(count, std::max<int64_t>(sizes[i], 1), &count)) {
      return Malformed("a tensor's shape is out of range");
    }
  }
  return offset < 0 ? Malformed("a tensor has a negative offset") : absl::OkStatus();
}

// The number of elements from a tensor's first to its last, or an error if it exceeds int64_t.
absl::StatusOr<int64_t> ExtentOf(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t last = 0, step = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last)) {
      return Malformed("a tensor's shape is out of range");
    }
  }
  return last + 1 > 0 ? absl::StatusOr<int64_t>(last + 1) : Malformed("a tensor's shape is out of range");
}

}  // namespace

absl::Status CheckBounds(int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides, uint64_t storage_bytes,
                         size_t element_size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(offset, sizes, strides));
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t extent, ExtentOf(sizes, strides));
  const uint64_t available = storage_bytes / element_size;
  if (static_cast<uint64_t>(offset) <= available && static_cast<uint64_t>(extent) <= available - offset) {
    return absl::OkStatus();
  }
  return Malformed(absl::StrCat("a tensor reaches element ", offset, " + ", extent, " of a storage of ", available));
}

}  // namespace lockstep::checkpoint::archive
