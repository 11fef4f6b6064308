// The element types and reductions of the shared-memory communicator.

#ifndef LOCKSTEP_COMM_SHM_DTYPE_H_
#define LOCKSTEP_COMM_SHM_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::comm::shm {

// kBytes is for data that is moved but never reduced.
enum class DType : uint8_t {
  kBytes,
  kBool,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

// kPremulSum multiplies each input by a factor for that input, and sums.
enum class Op : uint8_t { kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor, kPremulSum };
constexpr Op kOps[] = {Op::kSum,  Op::kAvg, Op::kProduct, Op::kMin,      Op::kMax,
                       Op::kBand, Op::kBor, Op::kBxor,    Op::kPremulSum};

// Bytes of one element; 1 for kBytes.
size_t SizeOf(DType dtype);

// "float32", "sum".
const char* NameOf(DType dtype);
const char* NameOf(Op op);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_DTYPE_H_
