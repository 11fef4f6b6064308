#include "lockstep/checkpoint/tensors/dtype.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/base/libtorch_version.h"

namespace lockstep::checkpoint::tensors {
namespace {

using at::ScalarType;

constexpr Dtype kDtypes[] = {
    {ScalarType::Float, "float32", "FloatStorage"},
    {ScalarType::Double, "float64", "DoubleStorage"},
    {ScalarType::Half, "float16", "HalfStorage"},
    {ScalarType::BFloat16, "bfloat16", "BFloat16Storage"},
    {ScalarType::Long, "int64", "LongStorage"},
    {ScalarType::Int, "int32", "IntStorage"},
    {ScalarType::Short, "int16", "ShortStorage"},
    {ScalarType::Char, "int8", "CharStorage"},
    {ScalarType::Byte, "uint8", "ByteStorage"},
    {ScalarType::Bool, "bool", "BoolStorage"},
    {ScalarType::ComplexFloat, "complex64", "ComplexFloatStorage"},
    {ScalarType::ComplexDouble, "complex128", "ComplexDoubleStorage"},
    {ScalarType::ComplexHalf, "complex32", ""},
    {ScalarType::UInt16, "uint16", ""},
    {ScalarType::UInt32, "uint32", ""},
    {ScalarType::UInt64, "uint64", ""},
    {ScalarType::Float8_e5m2, "float8_e5m2", ""},
    {ScalarType::Float8_e4m3fn, "float8_e4m3fn", ""},
    {ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", ""},
    {ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", ""},
    {ScalarType::Float8_e8m0fnu, "float8_e8m0fnu", ""},
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
    {ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2", ""},
#endif
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 15)
    {ScalarType::BComplex32, "bcomplex32", ""},
#endif
    {ScalarType::Bits8, "bits8", ""},
    {ScalarType::Bits16, "bits16", ""},
    {ScalarType::Bits1x8, "bits1x8", ""},
    {ScalarType::Bits2x4, "bits2x4", ""},
    {ScalarType::Bits4x2, "bits4x2", ""},
};

template <typename Matches>
const Dtype* FindIf(Matches matches) {
  for (const Dtype& dtype : kDtypes) {
    if (matches(dtype)) return &dtype;
  }
  return nullptr;
}

}  // namespace

const Dtype* FindDtype(ScalarType type) {
  return FindIf([&](const Dtype& dtype) { return dtype.type == type; });
}

absl::StatusOr<const Dtype*> DtypeOf(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("an undefined tensor");
  if (tensor.is_quantized()) return absl::UnimplementedError("a quantized tensor is not supported");
  if (tensor.layout() != at::kStrided) return absl::UnimplementedError("a sparse or nested tensor is not supported");
  if (tensor.is_meta()) return absl::UnimplementedError("a tensor on the meta device has no data");
  if (!tensor.has_storage()) return absl::UnimplementedError("a tensor without a storage is not supported");
  const ScalarType type = tensor.scalar_type();
  if (const Dtype* found = FindDtype(type)) return found;
  return absl::UnimplementedError(absl::StrCat("a tensor of dtype ", c10::toString(type), " is not supported"));
}

const Dtype* FindDtypeNamed(absl::string_view name) {
  return FindIf([&](const Dtype& dtype) { return dtype.name == name; });
}

const Dtype* FindDtypeOfStorage(absl::string_view storage) {
  if (storage.empty()) return nullptr;
  return FindIf([&](const Dtype& dtype) { return dtype.storage == storage; });
}

namespace {

// The integer type of the same size, in which any tensor can be copied.
at::ScalarType BitsType(size_t size) {
  switch (size) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;
  }
}

}  // namespace

at::Tensor Elements(const at::Tensor& tensor) {
  const at::Tensor detached = tensor.detach().resolve_conj().resolve_neg();
  return detached.view(BitsType(tensor.element_size())).contiguous().cpu();
}

}  // namespace lockstep::checkpoint::tensors
