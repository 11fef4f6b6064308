#ifndef LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_
#define LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_

namespace lockstep::comm::internal {

// Preferred to Gloo, which takes CUDA tensors by way of host memory.
constexpr int kNcclPreference = 10;

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_
