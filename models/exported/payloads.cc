#include "lockstep/models/exported/payloads.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/models/exported/operands.h"

namespace lockstep::models::exported {
namespace {

constexpr int64_t kStrided = 7;

// The number of bytes from the beginning of the record to the end of the tensor; -1 if it does not fit into 64 bits.
int64_t EndOf(const TensorMeta& meta, int64_t element_size) {
  int64_t last = meta.storage_offset.number;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i].number == 0) return 0;
    int64_t span = 0;
    if (__builtin_mul_overflow(meta.sizes[i].number - 1, meta.strides[i].number, &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return -1;
    }
  }
  int64_t end = 0;
  return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element_size, &end) ? -1 : end;
}

}  // namespace

absl::StatusOr<at::Tensor> ViewOf(const at::Tensor& bytes, const Payload& payload) {
  if (payload.pickled || !payload.tensor) {
    return absl::UnimplementedError("it is pickled, as tensor subclasses and custom objects are");
  }
  const TensorMeta& meta = *payload.tensor;
  if (meta.layout != kStrided) return absl::UnimplementedError("it is sparse");
  std::vector<int64_t> sizes, strides;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i].number < 0 || meta.strides[i].number < 0) return absl::DataLossError("its shape is symbolic");
    sizes.push_back(meta.sizes[i].number);
    strides.push_back(meta.strides[i].number);
  }
  if (meta.storage_offset.number < 0) return absl::DataLossError("its offset is symbolic");
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::ScalarType dtype, DtypeOfSchema(meta.dtype));
  const int64_t element = static_cast<int64_t>(c10::elementSize(dtype)), end = EndOf(meta, element);
  if (end < 0 || end > bytes.numel()) {
    return absl::DataLossError(
        absl::StrCat("its record \"", payload.record, "\" has ", bytes.numel(), " bytes, too few for its shape"));
  }
  const at::Tensor view = at::empty({0}, bytes.options().dtype(dtype));
  return view.set_(bytes.storage(), end == 0 ? 0 : meta.storage_offset.number, sizes, strides);
}

}  // namespace lockstep::models::exported
