#include "lockstep/optim/internal/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// GCC and clang vectorize the loops for each of these.
#if defined(__x86_64__)
#define LOCKSTEP_AVX2 __attribute__((target("avx2,fma")))
#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#endif
#if defined(__clang__)
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define LOCKSTEP_INLINE inline __attribute__((always_inline))

namespace lockstep::optim::internal {
namespace {

LOCKSTEP_INLINE float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LOCKSTEP_INLINE double Fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
LOCKSTEP_INLINE float Abs(float a) { return __builtin_fabsf(a); }
LOCKSTEP_INLINE double Abs(double a) { return __builtin_fabs(a); }
LOCKSTEP_INLINE float Sqrt(float a) { return __builtin_sqrtf(a); }
LOCKSTEP_INLINE double Sqrt(double a) { return __builtin_sqrt(a); }

// Rounds as ATen's CPU operators, which use fused multiply-adds where written so here. kSqrt rounds correctly.
template <Op kOp, typename T>
LOCKSTEP_INLINE T Apply(T a, T b, T c, T s) {
  if constexpr (kOp == Op::kNeg) return -a;
  if constexpr (kOp == Op::kClone) return a;
  if constexpr (kOp == Op::kMul) return a * b;
  if constexpr (kOp == Op::kMulScalar) return a * s;
  if constexpr (kOp == Op::kAdd) return Fma(b, s, a);
  if constexpr (kOp == Op::kAddScalar) return a + s;
  if constexpr (kOp == Op::kDiv) return a / b;
  if constexpr (kOp == Op::kDivScalar) return a / s;
  if constexpr (kOp == Op::kSqrt) return Sqrt(a);
  if constexpr (kOp == Op::kMaximum) return a != a || a > b ? a : b;
  if constexpr (kOp == Op::kLerp) return s > T(-0.5) && s < T(0.5) ? Fma(s, b - a, a) : Fma(s - T(1), b - a, b);
  if constexpr (kOp == Op::kAddcmul) return Fma(s * b, c, a);
  if constexpr (kOp == Op::kAddcdiv) return a + s * b / c;
  if constexpr (kOp == Op::kCopy) return a;
  if constexpr (kOp == Op::kReciprocal) return T(1) / a;
  if constexpr (kOp == Op::kAbs) return Abs(a);
}

template <Op kOp, typename T>
LOCKSTEP_INLINE void Loop(T* to, const T* a, const T* b, const T* c, T s, int64_t n) {
  LOCKSTEP_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) to[i] = Apply<kOp>(a[i], b[i], c[i], s);
}

template <Op kOp, typename T>
void Default(T* to, const T* a, const T* b, const T* c, T s, int64_t n) {
  Loop<kOp>(to, a, b, c, s, n);
}

#if defined(__x86_64__)
template <Op kOp, typename T>
LOCKSTEP_AVX2 void Avx2(T* to, const T* a, const T* b, const T* c, T s, int64_t n) {
  Loop<kOp>(to, a, b, c, s, n);
}

template <Op kOp, typename T>
LOCKSTEP_AVX512 void Avx512(T* to, const T* a, const T* b, const T* c, T s, int64_t n) {
  Loop<kOp>(to, a, b, c, s, n);
}
#endif

#if defined(__x86_64__)
// Takes zero, which is its own root, and 2^-100 to 2^126. Returns false, and leaves `to`, if a number is neither.
LOCKSTEP_AVX2 inline bool EightEstimatedRoots(const float* from, float* to) {
  const __m256 x = _mm256_loadu_ps(from), half = _mm256_set1_ps(0.5f), estimate = _mm256_rsqrt_ps(x);
  const __m256 zero = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
  const __m256 least = _mm256_cmp_ps(x, _mm256_set1_ps(0x1p-100f), _CMP_GE_OQ);
  const __m256 most = _mm256_cmp_ps(x, _mm256_set1_ps(0x1p126f), _CMP_LE_OQ);
  if (_mm256_movemask_ps(_mm256_or_ps(zero, _mm256_and_ps(least, most))) != 0xff) return false;
  __m256 root = x * estimate, half_reciprocal = half * estimate;
  const __m256 error = half - root * half_reciprocal;
  root = root + root * error;
  half_reciprocal = half_reciprocal + half_reciprocal * error;
  root = root + (x - root * root) * half_reciprocal;
  _mm256_storeu_ps(to, _mm256_blendv_ps(root, x, zero));
  return true;
}

LOCKSTEP_AVX2 int64_t EstimatedRoots(const float* from, float* to, int64_t n) {
  int64_t i = 0;
  while (i + 8 <= n && EightEstimatedRoots(from + i, to + i)) i += 8;
  return i;
}
#endif

template <Op kOp, typename T>
Kernel<T> KernelOf(Instructions instructions) {
#if defined(__x86_64__)
  if (instructions == Instructions::kAvx512) return Avx512<kOp, T>;
  if (instructions == Instructions::kAvx2) return Avx2<kOp, T>;
#endif
  return Default<kOp, T>;
}

}  // namespace

Instructions WidestInstructions() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx512) return Instructions::kAvx512;
  if (avx2) return Instructions::kAvx2;
#endif
  return Instructions::kDefault;
}

template <typename T>
Kernel<T> KernelFor(Op op, Instructions instructions) {
  switch (op) {
    case Op::kNeg:
      return KernelOf<Op::kNeg, T>(instructions);
    case Op::kClone:
      return KernelOf<Op::kClone, T>(instructions);
    case Op::kMul:
      return KernelOf<Op::kMul, T>(instructions);
    case Op::kMulScalar:
      return KernelOf<Op::kMulScalar, T>(instructions);
    case Op::kAdd:
      return KernelOf<Op::kAdd, T>(instructions);
    case Op::kAddScalar:
      return KernelOf<Op::kAddScalar, T>(instructions);
    case Op::kDiv:
      return KernelOf<Op::kDiv, T>(instructions);
    case Op::kDivScalar:
      return KernelOf<Op::kDivScalar, T>(instructions);
    case Op::kAsReal:
    case Op::kAsComplex:
      break;
    case Op::kSqrt:
      return KernelOf<Op::kSqrt, T>(instructions);
    case Op::kMaximum:
      return KernelOf<Op::kMaximum, T>(instructions);
    case Op::kLerp:
      return KernelOf<Op::kLerp, T>(instructions);
    case Op::kAddcmul:
      return KernelOf<Op::kAddcmul, T>(instructions);
    case Op::kAddcdiv:
      return KernelOf<Op::kAddcdiv, T>(instructions);
    case Op::kCopy:
      return KernelOf<Op::kCopy, T>(instructions);
    case Op::kReciprocal:
      return KernelOf<Op::kReciprocal, T>(instructions);
    case Op::kAbs:
      return KernelOf<Op::kAbs, T>(instructions);
  }
  return nullptr;
}

int64_t EstimatedRoot(const float* from, float* to, int64_t n) {
#if defined(__x86_64__)
  if (WidestInstructions() != Instructions::kDefault) return EstimatedRoots(from, to, n);
#endif
  return 0;
}

template Kernel<float> KernelFor(Op op, Instructions instructions);
template Kernel<double> KernelFor(Op op, Instructions instructions);

}  // namespace lockstep::optim::internal
