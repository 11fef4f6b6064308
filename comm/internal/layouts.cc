#include "lockstep/comm/internal/layouts.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::comm::internal {
namespace {

// All elements in the order in which they lie in memory.
at::Tensor InMemory(const at::Tensor& tensor) { return tensor.detach().as_strided({tensor.numel()}, {1}); }

}  // namespace

void CopyResults(Results& results) {
  const c10::NoGradGuard no_grad;
  for (auto& [to, from] : results) {
    to.detach().copy_(from);
    // The memory was allocated on another stream, perhaps.
    if (!from.is_cuda()) continue;
    const c10::impl::VirtualGuardImpl device(c10::kCUDA);
    device.recordDataPtrOnStream(from.storage().data_ptr(), device.getStream(from.device()));
  }
  results.clear();
}

at::Tensor Layouts::Read(const at::Tensor& tensor) const {
  if (tensor.is_contiguous()) return tensor;
  return by_index_ ? tensor.detach().contiguous() : InMemory(tensor);
}

at::Tensor Layouts::Write(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  if (!by_index_) return InMemory(tensor);
  return results_.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options().requires_grad(false))).second;
}

at::Tensor Layouts::Update(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  if (!by_index_) return InMemory(tensor);
  return results_.emplace_back(tensor, tensor.detach().contiguous()).second;
}

std::vector<at::Tensor> Layouts::Read(const std::vector<at::Tensor>& tensors) const {
  std::vector<at::Tensor> contiguous;
  for (const at::Tensor& tensor : tensors) contiguous.push_back(Read(tensor));
  return contiguous;
}

std::vector<at::Tensor> Layouts::Write(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> contiguous;
  for (const at::Tensor& tensor : tensors) contiguous.push_back(Write(tensor));
  return contiguous;
}

}  // namespace lockstep::comm::internal
