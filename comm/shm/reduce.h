// Element-wise reduction of several arrays into one or more.

#ifndef LOCKSTEP_COMM_SHM_REDUCE_H_
#define LOCKSTEP_COMM_SHM_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/shm/dtype.h"

namespace lockstep::comm::shm {

// Sets out[i] = (inputs[0][i] op inputs[1][i]) op inputs[2][i] ... for i < count, in every array of `outputs`. An
// output may be one of the inputs. Otherwise arrays must not overlap. They need no alignment beyond that of their type.
//
// Only kPremulSum uses `factors`, one for each input; otherwise it may be null. The factors and products are rounded to
// the dtype before the sum.
//
// 16-bit floats are reduced in float32 and rounded once, to nearest even, as in PyTorch. So with two inputs the result
// equals the sum of two such tensors. kAvg divides the sum by `inputs_count` before rounding. Integers wrap around. As
// in at::minimum, kMin and kMax return NaN if an input is NaN. The result depends only on the inputs.
using ReduceFunction = void (*)(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count,
                                size_t count, const double* factors);

// Reduces as ReduceFunction does, except that the order of additions is a tree: puts the inputs on a stack, and after
// input k adds the two arrays on top adds[k] times. One array must remain; it is divided by `divisor`. The stack has at
// most kMostTreeDepth arrays. 16-bit floats are rounded after each addition, so a sum of sums does not depend on which
// of them were stored, and once more after the division.
using TreeSumFunction = void (*)(char* const* outputs, int outputs_count, const char* const* inputs,
                                 const uint8_t* adds, int inputs_count, size_t count, int divisor);
constexpr int kMostTreeDepth = 24;

// The fastest function that this processor supports. Null for integers, booleans and bytes.
TreeSumFunction TreeSumFunctionFor(DType dtype);

// The fastest function that this processor supports. Null if the reduction is not defined for the dtype: kAvg of
// integers, order or bits of complex numbers, bits of floating-point numbers, or any of kBytes. kPremulSum supports
// only kFloat32 and kFloat64. For booleans, kSum and kMax are "or", and kProduct and kMin are "and".
ReduceFunction ReduceFunctionFor(DType dtype, Op op);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_REDUCE_H_
