#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/cuda/comm.h>
#include <torch/csrc/cuda/nccl.h>

#include <algorithm>
#include <optional>

#include "lockstep/dp/internal/copy.h"
#include "lockstep/dp/internal/peers.h"

namespace lockstep::dp::internal {
namespace {

// Returns whether tensors[begin, end) can be sent as one tensor.
bool IsOneMessage(const std::vector<at::Tensor>& tensors, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != c10::kStrided ||
        tensor.dtype() != tensors[0].dtype() || tensor.device() != tensors[begin].device()) {
      return false;
    }
  }
  return true;
}

at::Tensor Flat(const std::vector<at::Tensor>& tensors, size_t begin, size_t end) {
  std::vector<at::Tensor> flat;
  for (size_t i = begin; i < end; ++i) flat.push_back(tensors[i].reshape({-1}));
  return at::cat(flat);
}

bool AreDistinct(const std::vector<at::Tensor>& tensors) {
  std::vector<int> devices;
  for (const at::Tensor& tensor : tensors) devices.push_back(tensor.get_device());
  std::sort(devices.begin(), devices.end());
  return std::adjacent_find(devices.begin(), devices.end()) == devices.end();
}

// On the device of the first.
at::Tensor Sum(const std::vector<at::Tensor>& messages) {
  if (messages.size() == 1) return messages[0];
  at::Tensor sum = at::empty_like(messages[0]);
  torch::cuda::nccl::reduce(messages, sum, /*root=*/0);
  return sum;
}

}  // namespace

std::optional<std::vector<at::Tensor>> SumOverPeers(const std::vector<at::Tensor>& gradients,
                                                    const std::vector<c10::Device>& devices) {
  const size_t sources = devices.size();
  // Under create_graph the sum must be differentiable, and this one is not.
  if (sources == 0 || at::GradMode::is_enabled()) return std::nullopt;
  std::vector<at::Tensor> messages;
  for (size_t begin = 0; begin < gradients.size(); begin += sources) {
    if (!IsOneMessage(gradients, begin, begin + sources)) return std::nullopt;
  }
  for (size_t begin = 0; begin < gradients.size(); begin += sources) {
    messages.push_back(Flat(gradients, begin, begin + sources));
  }
  const bool at_one_place = std::adjacent_find(devices.begin(), devices.end(), std::not_equal_to<>()) == devices.end();
  if (!at_one_place || !AreDistinct(messages)) return std::nullopt;
  const at::Tensor flat = CopyTo(Sum(messages), devices[0]);
  std::vector<at::Tensor> sums;
  int64_t offset = 0;
  for (size_t i = 0; i < sources; ++i) {
    sums.push_back(flat.narrow(0, offset, gradients[i].numel()).view(gradients[i].sizes()));
    offset += gradients[i].numel();
  }
  return sums;
}

bool CopyToPeers(const at::Tensor& source, std::vector<at::Tensor> targets) {
  torch::cuda::broadcast_out(source, targets);
  return true;
}

std::optional<DeviceProperties> PropertiesOf(c10::Device device) {
  const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(device.index());
  return DeviceProperties{static_cast<int64_t>(properties->totalGlobalMem), properties->multiProcessorCount};
}

}  // namespace lockstep::dp::internal
