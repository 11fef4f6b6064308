#include "lockstep/ddp/internal/kernels.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mul.h>

#include <cstdint>
#include <cstring>

namespace lockstep::ddp::internal {
namespace {

// Element i of one is at the same place of its memory as element i of the other.
bool OneLayout(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && b.is_cpu() && a.layout() == at::kStrided && b.layout() == at::kStrided &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && !a.is_neg() && !b.is_neg() && !a.is_conj() && !b.is_conj();
}

template <typename T>
void ScaleNumbers(const at::Tensor& out, const at::Tensor& in, double factor) {
  T* const to = out.data_ptr<T>();
  const T* const from = in.const_data_ptr<T>();
  const T f = static_cast<T>(factor);
  const int64_t n = in.numel();
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * f;
}

// Whether an exponent is all ones.
template <typename Bits>
bool AnyNonFinite(const at::Tensor& tensor, Bits exponent) {
  const Bits* const bits = static_cast<const Bits*>(tensor.const_data_ptr());
  const int64_t n = tensor.numel();
  Bits any = 0;
  for (int64_t i = 0; i < n; ++i) any |= static_cast<Bits>((bits[i] & exponent) == exponent);
  return any != 0;
}

}  // namespace

void Scale(const at::Tensor& out, const at::Tensor& in, double factor) {
  if (OneLayout(out, in) && in.scalar_type() == at::kFloat) return ScaleNumbers<float>(out, in, factor);
  if (OneLayout(out, in) && in.scalar_type() == at::kDouble) return ScaleNumbers<double>(out, in, factor);
  at::Tensor result = out;
  at::mul_out(result, in, at::native::wrapped_scalar_tensor(factor));
}

void Copy(const at::Tensor& out, const at::Tensor& in) {
  if (OneLayout(out, in)) {
    std::memcpy(out.data_ptr(), in.const_data_ptr(), in.nbytes());
  } else {
    out.copy_(in);
  }
}

bool HasNonFinite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return false;
  if (tensor.is_cpu() && tensor.is_non_overlapping_and_dense()) {
    if (tensor.scalar_type() == at::kFloat) return AnyNonFinite<uint32_t>(tensor, 0x7f800000);
    if (tensor.scalar_type() == at::kDouble) return AnyNonFinite<uint64_t>(tensor, 0x7ff0000000000000);
    if (tensor.scalar_type() == at::kHalf) return AnyNonFinite<uint16_t>(tensor, 0x7c00);
    if (tensor.scalar_type() == at::kBFloat16) return AnyNonFinite<uint16_t>(tensor, 0x7f80);
  }
  return !tensor.isfinite().all().item<bool>();
}

}  // namespace lockstep::ddp::internal
