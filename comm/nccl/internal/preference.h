#ifndef LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_
#define LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_

namespace lockstep::comm {

// Before Gloo, which takes CUDA tensors by way of the host.
constexpr int kNcclPreference = 10;

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_NCCL_INTERNAL_PREFERENCE_H_
