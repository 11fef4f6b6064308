#include "lockstep/checkpoint/internal/dtype.h"

namespace lockstep::checkpoint::internal {
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
    {ScalarType::Float4_e2m1fn_x2, "float4_e2m1fn_x2", ""},
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

const Dtype* FindDtypeNamed(absl::string_view name) {
  return FindIf([&](const Dtype& dtype) { return dtype.name == name; });
}

const Dtype* FindDtypeOfStorage(absl::string_view storage) {
  if (storage.empty()) return nullptr;
  return FindIf([&](const Dtype& dtype) { return dtype.storage == storage; });
}

}  // namespace lockstep::checkpoint::internal
