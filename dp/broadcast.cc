#include "lockstep/dp/broadcast.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "lockstep/dp/internal/copy.h"
#include "lockstep/dp/internal/sum_of_copies.h"

namespace lockstep::dp {
namespace {

// Copies without history. On the tensor's own device, the copy is another tensor over the same memory, with the same
// version.
at::Tensor CopyWithoutHistory(const at::Tensor& tensor, c10::Device device) {
  const c10::NoGradGuard no_grad;
  return internal::CopyTo(tensor.detach(), device);
}

}  // namespace

std::vector<std::vector<at::Tensor>> Broadcast(const std::vector<at::Tensor>& tensors,
                                               const std::vector<c10::Device>& devices) {
  TORCH_CHECK_VALUE(!devices.empty(), "Broadcast: expected one device or more, found none");
  std::vector<std::vector<at::Tensor>> copies(devices.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK_VALUE(tensors[i].defined(), "Broadcast: tensor ", i, " is undefined");
    for (size_t d = 0; d < devices.size(); ++d) copies[d].push_back(CopyWithoutHistory(tensors[i], devices[d]));
  }
  if (at::GradMode::is_enabled()) internal::AttachCopies(tensors, copies);
  return copies;
}

}  // namespace lockstep::dp
