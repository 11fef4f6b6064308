#include "lockstep/dp/internal/module.h"

#include <string>
#include <unordered_set>

namespace lockstep::dp::internal {
namespace {

bool AreOnDevice(const std::vector<at::Tensor>& tensors, c10::Device device) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != device) return false;
  }
  return true;
}

void CheckNamed(const torch::OrderedDict<std::string, at::Tensor>& tensors, c10::Device device) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK(tensor.value().device() == device, "module must have its parameters and buffers on device ", device,
                " (device_ids[0]) but found one of them, ", tensor.key(), ", on device: ", tensor.value().device());
  }
}

}  // namespace

// Names are the most expensive part here, so they are requested only for an error.
void CheckOnDevice(torch::nn::Module& module, c10::Device device) {
  bool on_device = true;
  for (const auto& part : module.modules()) {
    on_device &= AreOnDevice(part->parameters(/*recurse=*/false), device) &&
                 AreOnDevice(part->buffers(/*recurse=*/false), device);
  }
  if (on_device) return;
  CheckNamed(module.named_parameters(), device);
  CheckNamed(module.named_buffers(), device);
}

std::vector<at::Tensor> UniqueParameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (at::Tensor& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace lockstep::dp::internal
