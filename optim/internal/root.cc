#include "lockstep/optim/internal/root.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sqrt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/optim/internal/kernels.h"

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
void ATensRoot(Function<T> function, const T* from, T* to, int64_t n) {
  static const bool is_atens = IsATens(function);
  if (is_atens) return function(static_cast<int>(n), from, to, kMode);
  at::Tensor roots = at::from_blob(to, {n}, c10::CppTypeToScalarType<T>::value);
  at::sqrt_out(roots, at::from_blob(const_cast<T*>(from), {n}, c10::CppTypeToScalarType<T>::value));
}

// Returns the number of roots that it has written; it need not know the next.
using FloatRoot = int64_t (*)(const float* from, float* to, int64_t n);

int64_t CorrectRoot(const float* from, float* to, int64_t n) {
  KernelFor<float>(Op::kSqrt, WidestInstructions())(to, from, from, from, 0, n);
  return n;
}

int64_t NoRoot(const float*, float*, int64_t) { return 0; }

using Numbers = std::array<float, 4096>;

bool SameBits(const Numbers& a, const Numbers& b) {
  const void *const a_bytes = a.data(), *const b_bytes = b.data();
  return std::memcmp(a_bytes, b_bytes, sizeof(a)) == 0;
}

// Compares the roots of 4096 floats: their bits begin at `first` and are `stride` apart.
bool Agree(FloatRoot root, uint32_t first, uint32_t stride) {
  Numbers numbers, found, expected;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint32_t bits = first + static_cast<uint32_t>(i) * stride;
    std::memcpy(&numbers[i], &bits, sizeof(bits));
  }
  const int64_t n = numbers.size();
  ATensRoot<float>(vmsSqrt, numbers.data(), expected.data(), n);
  return root(numbers.data(), found.data(), n) == n && SameBits(found, expected);
}

// Returns true if the root equals ATen's for all floats from 1 to 4, and for some of all other exponents from -100 to 125.
bool HasATensBits(FloatRoot root) {
  constexpr uint32_t kLeast = (127 - 100) << 23, kEnd = (127 + 126) << 23, kOne = 127 << 23, kFour = 129 << 23;
  bool same = Agree(root, kLeast, (kEnd - kLeast) / 4096);
  for (uint32_t first = kOne; same && first < kFour; first += 4096) same = Agree(root, first, 1);
  return same;
}

FloatRoot FastRoot() {
  for (const FloatRoot root : {CorrectRoot, EstimatedRoot}) {
    if (HasATensBits(root)) return root;
  }
  return NoRoot;
}

}  // namespace

void Root(const float* from, float* to, int64_t n) {
  static const FloatRoot fast = FastRoot();
  const int64_t done = fast(from, to, n);
  if (done < n) ATensRoot<float>(vmsSqrt, from + done, to + done, n - done);
}

void Root(const double* from, double* to, int64_t n) { ATensRoot<double>(vmdSqrt, from, to, n); }

}  // namespace lockstep::optim::internal
