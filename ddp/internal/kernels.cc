#include "lockstep/ddp/internal/kernels.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mul.h>

#include <cstdint>
#include <cstring>

namespace lockstep::ddp::internal {
namespace {

// Returns whether element i of both has the same position in memory.
bool OneLayout(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && b.is_cpu() && a.layout() == at::kStrided && b.layout() == at::kStrided &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && !a.is_neg() && !b.is_neg() && !a.is_conj() && !b.is_conj();
}

// The loops below are compiled twice on x86-64: for every processor, and for those with AVX2.
#if defined(__x86_64__)
#define LOCKSTEP_AVX2 __attribute__((target("avx2")))
bool HasAvx2() {
  static const bool kHas = __builtin_cpu_supports("avx2");
  return kHas;
}
#else
#define LOCKSTEP_AVX2
bool HasAvx2() { return false; }
#endif
#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

template <typename T>
LOCKSTEP_INLINE void ScaleLoop(T* to, const T* from, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

template <typename T>
LOCKSTEP_AVX2 void ScaleLoopAvx2(T* to, const T* from, int64_t n, T factor) {
  ScaleLoop(to, from, n, factor);
}

template <typename T>
void ScaleNumbers(const at::Tensor& out, const at::Tensor& in, double factor) {
  const auto loop = HasAvx2() ? &ScaleLoopAvx2<T> : &ScaleLoop<T>;
  loop(out.data_ptr<T>(), in.data_ptr<T>(), in.numel(), static_cast<T>(factor));
}

// Returns whether an exponent is all ones.
template <typename Bits>
LOCKSTEP_INLINE bool AnyLoop(const Bits* bits, int64_t n, Bits exponent) {
  Bits any = 0;
  for (int64_t i = 0; i < n; ++i) any |= static_cast<Bits>((bits[i] & exponent) == exponent);
  return any != 0;
}

template <typename Bits>
LOCKSTEP_AVX2 bool AnyLoopAvx2(const Bits* bits, int64_t n, Bits exponent) {
  return AnyLoop(bits, n, exponent);
}

template <typename Bits>
bool AnyNonFinite(const at::Tensor& tensor, Bits exponent) {
  const auto loop = HasAvx2() ? &AnyLoopAvx2<Bits> : &AnyLoop<Bits>;
  return loop(static_cast<const Bits*>(tensor.const_data_ptr()), tensor.numel(), exponent);
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
