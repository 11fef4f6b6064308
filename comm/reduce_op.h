// How a collective combines what the ranks give.

#ifndef LOCKSTEP_COMM_REDUCE_OP_H_
#define LOCKSTEP_COMM_REDUCE_OP_H_

#include <c10/core/ScalarType.h>

#include "absl/status/status.h"

namespace lockstep::comm {

// kAvg is the sum divided by the number of ranks. Of bool, kSum and kMax are "or", kProduct and kMin "and", as in
// PyTorch's arithmetic.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor };

// "sum", "avg", "product", "min", "max", "band", "bor" or "bxor".
const char* NameOf(ReduceOp op);

// InvalidArgument where `op` means nothing for `dtype`: kAvg is for floating-point and complex numbers, kMin and kMax
// for those that have an order (not complex), the bitwise ones for integers and bool.
absl::Status CheckReduceOp(ReduceOp op, c10::ScalarType dtype);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_REDUCE_OP_H_
