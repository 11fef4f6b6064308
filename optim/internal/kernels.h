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
// Returns the loop of an operator, nullptr for kAsReal, kAsComplex and kSqrt. T is float or double.
template <typename T>
Kernel<T> KernelFor(Op op, Instructions instructions);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_KERNELS_H_
