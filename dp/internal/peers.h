#ifndef LOCKSTEP_DP_INTERNAL_PEERS_H_
#define LOCKSTEP_DP_INTERNAL_PEERS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::dp::internal {

// LibTorch functions for GPUs only. Without --config=cuda they do nothing.

// Sums gradients[copy * n + source] over the copies, for n sources on `devices`, if all are dense, of one dtype, on
// GPUs, and the copies on different GPUs. Each copy's gradients are sent as one tensor, over NCCL if there are three or
// more GPUs. Otherwise returns nullopt.
std::optional<std::vector<at::Tensor>> SumOverPeers(const std::vector<at::Tensor>& gradients,
                                                    const std::vector<c10::Device>& devices);

// Copies `source` to each of `targets`, flat tensors of its size and dtype on other GPUs; over NCCL where possible.
// Without CUDA it does nothing and returns false.
bool CopyToPeers(const at::Tensor& source, std::vector<at::Tensor> targets);

struct DeviceProperties {
  int64_t memory;  // bytes
  int64_t multiprocessors;
};

// For a GPU; nullopt without CUDA.
std::optional<DeviceProperties> PropertiesOf(c10::Device device);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_PEERS_H_
