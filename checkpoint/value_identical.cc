#include <cstdint>
#include <cstring>

#include "lockstep/checkpoint/tensors/dtype.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace {

bool SameTensor(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) return true;
  if (!a.defined() || !b.defined() || a.layout() != at::kStrided || b.layout() != at::kStrided) return false;
  if (a.is_quantized() || b.is_quantized()) return false;  // they have no plain elements to compare
  if (a.scalar_type() != b.scalar_type() || a.device() != b.device() || a.sizes() != b.sizes()) return false;
  if (a.requires_grad() != b.requires_grad() || a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) return false;
  if (a.numel() == 0) return true;
  const at::Tensor left = tensors::Elements(a), right = tensors::Elements(b);
  return std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

bool SameAttributes(const Value& a, const Value& b) { return Identical(a.attributes(), b.attributes()); }

bool SameItems(const Value& a, const Value& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Identical(a.items()[i], b.items()[i])) return false;
  }
  return true;
}

bool SameDict(const Value& a, const Value& b) {
  if (a.dict_kind() != b.dict_kind() || a.size() != b.size() || !SameAttributes(a, b)) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Identical(a.entries()[i].first, b.entries()[i].first)) return false;
    if (!Identical(a.entries()[i].second, b.entries()[i].second)) return false;
  }
  return true;
}

// Not ==: NaN is the same as itself here, and -0 is not 0.
bool SameBits(double a, double b) {
  uint64_t a_bits, b_bits;
  std::memcpy(&a_bits, &a, sizeof(a));
  std::memcpy(&b_bits, &b, sizeof(b));
  return a_bits == b_bits;
}

}  // namespace

bool Identical(const Value& a, const Value& b) {
  if (a.type() != b.type() || a.is_parameter() != b.is_parameter()) return false;
  if (!a.is_tensor() && a.identity() && a.identity() == b.identity()) return true;
  switch (a.type()) {
    case Value::Type::kNone:
      return true;
    case Value::Type::kBool:
      return a.bool_value() == b.bool_value();
    case Value::Type::kInt:
      return a.int_value() == b.int_value();
    case Value::Type::kDouble:
      return SameBits(a.double_value(), b.double_value());
    case Value::Type::kString:
      return a.string_value() == b.string_value();
    case Value::Type::kBytes:
      return a.bytes_value() == b.bytes_value();
    case Value::Type::kTensor:
      return SameTensor(a.tensor(), b.tensor()) && SameAttributes(a, b);
    case Value::Type::kList:
    case Value::Type::kTuple:
      return SameItems(a, b);
    case Value::Type::kDict:
      return SameDict(a, b);
  }
  return false;
}

}  // namespace lockstep::checkpoint
