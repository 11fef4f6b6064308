// The expected results of collectives, computed one number at a time from all ranks' inputs.

#ifndef LOCKSTEP_COMM_TESTING_REFERENCE_H_
#define LOCKSTEP_COMM_TESTING_REFERENCE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::comm::testing {

// Every dtype that a dense CPU tensor can have.
const std::vector<at::ScalarType>& AllDtypes();

// The input of rank `rank` of `size` to call number `seed`: small whole numbers, so that no dtype rounds and the order
// of additions does not matter. They are multiples of `size`, for averages. Every rank can compute it.
at::Tensor Input(int rank, int size, at::IntArrayRef shape, at::ScalarType dtype, int seed);

// `op` over tensors of one shape and dtype, in that dtype.
at::Tensor Reduced(const std::vector<at::Tensor>& inputs, ReduceOp op);

// Returns whether both have the same shape, dtype and numbers. Supports dtypes without at::equal.
bool Same(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_REFERENCE_H_
