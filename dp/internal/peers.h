#ifndef LOCKSTEP_DP_INTERNAL_PEERS_H_
#define LOCKSTEP_DP_INTERNAL_PEERS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "absl/types/optional.h"

namespace lockstep::dp::internal {

// What LibTorch offers for GPUs only. Without --config=cuda these say that they are of no help.

// For gradients[copy * n + source] of n sources on `devices`: the sources' sums, where all are dense and of one dtype
// on GPUs and the copies of each are on one GPU of their own. Each copy's gradients travel as one, and over NCCL where
// three GPUs or more are concerned. Else nothing.
absl::optional<std::vector<at::Tensor>> SumOverPeers(const std::vector<at::Tensor>& gradients,
                                                     const std::vector<c10::Device>& devices);

// Copies `source` to each of `targets`, flat tensors of its size and dtype on other GPUs; over NCCL where possible.
// False, with nothing done: without CUDA.
bool CopyToPeers(const at::Tensor& source, std::vector<at::Tensor> targets);

struct DeviceProperties {
  int64_t memory;  // bytes
  int64_t multiprocessors;
};

// Of a GPU; nothing without CUDA.
absl::optional<DeviceProperties> PropertiesOf(c10::Device device);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_PEERS_H_
