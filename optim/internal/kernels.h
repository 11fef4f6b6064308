// The loops of elementwise operators over arrays, for each of the processor's vector instructions.

#ifndef LOCKSTEP_OPTIM_INTERNAL_KERNELS_H_
#define LOCKSTEP_OPTIM_INTERNAL_KERNELS_H_

#include <cstdint>

namespace lockstep::optim::internal {

enum class Op : int8_t {
  kAsReal,
  kNeg,
  kClone,
  kMul,
  kMulScalar,
  kAdd,
  kAddScalar,
  kDiv,
  kDivScalar,
  kSqrt,
  kMaximum,
  kLerp,
  kAddcmul,
  kAddcdiv,
  kAbs,
  kReciprocal,
  kCopy,
  kAsComplex,
};

// Processors' vector instructions, from the narrowest on.
enum class Instructions { kDefault, kAvx2, kAvx512 };
// Returns the widest that the processor has.
Instructions WidestInstructions();

// to[i] = op(a[i], b[i], c[i], scalar) for n elements. Operands may be `to`.
template <typename T>
using Kernel = void (*)(T* to, const T* a, const T* b, const T* c, T scalar, int64_t n);
// Returns the loop of an operator, nullptr for kAsReal and kAsComplex. T is float or double. The loop of kSqrt rounds
// correctly, which ATen's square root may not do: see root.h.
template <typename T>
Kernel<T> KernelFor(Op op, Instructions instructions);

// to[i] = the square root of from[i], by the processor's estimate of 1 / sqrt(x) and two of Goldschmidt's steps without
// fused multiply-adds, which do not round correctly. `to` may be `from`. Returns the number of roots, at most `n`: it takes
// eight at a time, and stops before numbers that are neither zero nor within [2^-100, 2^126]. Within, what the steps
// compute scales with the number's exponent: nothing overflows or is denormal. Without AVX2 there are no roots.
int64_t EstimatedRoot(const float* from, float* to, int64_t n);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_KERNELS_H_
