#include "lockstep/optim/internal/root.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sqrt.h>

// MKL's functions, if LibTorch has them. `mode` is a sum of MKL's constants.
extern "C" {
__attribute__((weak)) void vmsSqrt(int n, const float* from, float* to, int64_t mode);
__attribute__((weak)) void vmdSqrt(int n, const double* from, double* to, int64_t mode);
}

namespace lockstep::optim::internal {
namespace {

// High accuracy, denormal numbers kept, errors ignored: as ATen calls them.
constexpr int64_t kMode = 0x2 | 0x140000 | 0x100;

template <typename T>
using Function = void (*)(int, const T*, T*, int64_t);

// Returns true if the function is linked, and gives ATen's bits.
template <typename T>
bool IsATens(Function<T> function) {
  if (!function) return false;
  const at::Tensor numbers = at::linspace(0, 7, 4099, c10::CppTypeToScalarType<T>::value);
  const at::Tensor roots = at::empty_like(numbers);
  function(static_cast<int>(numbers.numel()), numbers.data_ptr<T>(), roots.data_ptr<T>(), kMode);
  return roots.equal(at::sqrt(numbers));
}

template <typename T>
void RootBy(Function<T> function, T* data, int64_t n) {
  static const bool is_atens = IsATens(function);
  if (is_atens) return function(static_cast<int>(n), data, data, kMode);
  at::from_blob(data, {n}, c10::CppTypeToScalarType<T>::value).sqrt_();
}

}  // namespace

void Root(float* data, int64_t n) { RootBy<float>(vmsSqrt, data, n); }
void Root(double* data, int64_t n) { RootBy<double>(vmdSqrt, data, n); }

}  // namespace lockstep::optim::internal
