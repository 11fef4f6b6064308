#ifndef LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "lockstep/comm/shm/call.h"

namespace lockstep::comm::shm::internal {

// The dtype as the communicator knows it; kBytes for those that it can move but not reduce.
DType DTypeOf(const at::Tensor& tensor);

// Throws c10::NotImplementedError, naming `operation`, the reduction and the dtype, where the communicator has none.
Op OpFor(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor);

// What a PREMUL_SUM multiplies this rank's numbers by; 1 for any other reduction.
double FactorOf(const c10d::ReduceOp& op);

// The memory of a tensor. Throws c10::ValueError, naming `operation`, for one that is not dense and contiguous on the
// CPU.
Buffer BufferOf(const char* operation, const at::Tensor& tensor);

// `tensor` cut into `count` buffers along its first dimension: of `splits` rows each, or equal ones where that is
// empty.
Buffers Cut(const char* operation, const at::Tensor& tensor, int count, const std::vector<int64_t>& splits = {});

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_TENSORS_H_
