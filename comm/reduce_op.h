// The operations with which a collective combines the inputs of the ranks.

#ifndef LOCKSTEP_COMM_REDUCE_OP_H_
#define LOCKSTEP_COMM_REDUCE_OP_H_

#include <c10/core/ScalarType.h>

#include "absl/status/status.h"

namespace lockstep::comm {

// kAvg is the sum divided by the number of ranks. For bool, kSum and kMax are "or", and kProduct and kMin are "and", as
// in PyTorch.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax, kBand, kBor, kBxor };

// "sum", "avg", "product", "min", "max", "band", "bor" or "bxor".
const char* NameOf(ReduceOp op);

// InvalidArgument: `op` is not defined for `dtype`. kAvg needs floating-point or complex numbers, kMin and kMax need
// ordered numbers (not complex), and the bitwise operations need integers or bool.
absl::Status CheckReduceOp(ReduceOp op, c10::ScalarType dtype);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_REDUCE_OP_H_
