#ifndef LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "lockstep/comm/shm/operation.h"

namespace lockstep::comm::shm::internal {

// The communicator's dtype. kBytes if it can move the dtype but not reduce it.
DType DTypeOf(const at::Tensor& tensor);

// Throws c10::NotImplementedError, naming `operation`, the reduction and the dtype, if the communicator does not
// support it.
Op OpFor(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor);

// The factor of this rank for a PREMUL_SUM; 1 for other reductions.
double FactorOf(const c10d::ReduceOp& op);

// The memory of a tensor. Throws c10::ValueError, naming `operation`, for one that is not dense and contiguous on the
// CPU.
Buffer BufferOf(const char* operation, const at::Tensor& tensor);

// Divides `tensor` into `count` buffers along its first dimension, with `splits` rows each, or equally if `splits` is
// empty.
Buffers Cut(const char* operation, const at::Tensor& tensor, int count, const std::vector<int64_t>& splits = {});

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_
