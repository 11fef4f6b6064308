#include "lockstep/checkpoint/pt2/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::pt2 {
namespace {

using T = c10::ScalarType;

// By the schema's numbers, from 1 and from 28 on.
constexpr T kFirst[] = {T::Byte,   T::Char,        T::Short,        T::Int,           T::Long, T::Half,    T::Float,
                        T::Double, T::ComplexHalf, T::ComplexFloat, T::ComplexDouble, T::Bool, T::BFloat16};
constexpr T kLast[] = {T::UInt16, T::Float8_e4m3fn, T::Float8_e5m2, T::Float8_e4m3fnuz, T::Float8_e5m2fnuz};
constexpr int64_t kLastBegin = 28;

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

// The inverse of DtypeOfSchema.
absl::StatusOr<int64_t> NumberOf(T dtype) {
  if (const T* found = std::find(std::begin(kFirst), std::end(kFirst), dtype); found != std::end(kFirst))
    return 1 + (found - kFirst);
  if (const T* found = std::find(std::begin(kLast), std::end(kLast), dtype); found != std::end(kLast))
    return kLastBegin + (found - kLast);
  return absl::UnimplementedError(absl::StrCat("the schema has no dtype ", c10::toString(dtype)));
}

}  // namespace

absl::StatusOr<c10::ScalarType> DtypeOfSchema(int64_t number) {
  constexpr int64_t kFirstEnd = 1 + std::size(kFirst), kLastEnd = kLastBegin + std::size(kLast);
  if (number >= 1 && number < kFirstEnd) return kFirst[number - 1];
  if (number >= kLastBegin && number < kLastEnd) return kLast[number - kLastBegin];
  return absl::UnimplementedError(absl::StrCat("dtype ", number, " of the schema is unknown"));
}

absl::StatusOr<c10::Device> DeviceOfSchema(const std::string& type, int64_t index, std::optional<c10::Device> moved) {
  if (moved && type != "meta") return *moved;
  const absl::StatusOr<c10::Device> device =
      TorchStatusOr("", [&] { return c10::Device(index < 0 ? type : absl::StrCat(type, ":", index)); });
  if (device.ok()) return device;
  return absl::DataLossError(absl::StrCat("there is no device \"", type, ":", index, "\""));
}

absl::StatusOr<at::Tensor> ViewOf(const at::Tensor& bytes, const Payload& payload) {
  if (payload.pickled || !payload.tensor) {
    return absl::UnimplementedError("it is pickled, as tensor subclasses and custom objects are");
  }
  const TensorMeta& meta = *payload.tensor;
  if (meta.layout != kStridedLayout) return absl::UnimplementedError("it is sparse");
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

absl::StatusOr<TensorMeta> MetaOf(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) return absl::UnimplementedError("it is not strided");
  TensorMeta meta;
  LOCKSTEP_ASSIGN_OR_RETURN(meta.dtype, NumberOf(tensor.scalar_type()));
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    meta.sizes.push_back({tensor.size(i)});
    meta.strides.push_back({tensor.stride(i)});
  }
  meta.storage_offset.number = tensor.storage_offset();
  meta.requires_grad = tensor.requires_grad();
  return meta;
}

}  // namespace lockstep::checkpoint::pt2
