// Element-wise reduction of several arrays into one or more.

#ifndef LOCKSTEP_COMM_SHM_REDUCE_H_
#define LOCKSTEP_COMM_SHM_REDUCE_H_

#include <cstddef>

#include "lockstep/comm/shm/dtype.h"

namespace lockstep::comm::shm {

// Sets out[i] = (inputs[0][i] op inputs[1][i]) op inputs[2][i] ... for i < count, in every array of `outputs`. An
// output may be one of the inputs, and none may overlap another array otherwise. Arrays need no alignment beyond their
// type's.
//
// `factors`, one an input, are read by kPremulSum alone and may be null otherwise; they and the products are rounded to
// the dtype before the sum.
//
// 16-bit floats are reduced in float32 and rounded once, to nearest even, as PyTorch rounds; so with two inputs the
// result is that of adding two such tensors. kAvg divides the sum by `inputs_count` before rounding. Integers wrap.
// kMin and kMax return NaN where an input is NaN, as at::minimum. The result depends on nothing but the inputs.
using ReduceFunction = void (*)(char* const* outputs, int outputs_count, const char* const* inputs, int inputs_count,
                                size_t count, const double* factors);

// Null where the reduction makes no sense for the dtype: kAvg of integers, order or bits of complex numbers, bits of
// floating-point numbers, anything of kBytes. kPremulSum is for kFloat32 and kFloat64. Booleans: kSum and kMax are
// "or", kProduct and kMin are "and". The fastest one that this processor can run.
ReduceFunction ReduceFunctionFor(DType dtype, Op op);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_REDUCE_H_
