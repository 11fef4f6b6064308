#include "lockstep/comm/internal/flat.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "lockstep/base/status.h"

namespace lockstep::comm::internal {
namespace {

constexpr int64_t kBufferBytes = int64_t{250} << 20;

// The tensors of each buffer. The buffers are sorted by their first tensor.
std::vector<std::vector<at::Tensor>> Buffers(const std::vector<at::Tensor>& tensors) {
  struct Open {
    size_t buffer = 0;
    int64_t bytes = 0;
  };
  std::map<std::pair<std::string, at::ScalarType>, Open> open;
  std::vector<std::vector<at::Tensor>> buffers;
  for (const at::Tensor& tensor : tensors) {
    const std::pair<std::string, at::ScalarType> kind = {tensor.device().str(), tensor.scalar_type()};
    const auto [place, is_new] = open.try_emplace(kind, Open{buffers.size(), 0});
    if (is_new) buffers.emplace_back();
    buffers[place->second.buffer].push_back(tensor);
    place->second.bytes += static_cast<int64_t>(tensor.nbytes());
    if (place->second.bytes >= kBufferBytes) open.erase(place);
  }
  return buffers;
}

// Returns whether both have the same bytes, as far as that is cheap to know.
bool Same(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && b.is_cpu() && a.is_contiguous() && b.is_contiguous() && a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

at::Tensor Flatten(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  return at::cat(flat);
}

void Unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor part = flat.narrow(0, at, tensor.numel()).view(tensor.sizes());
    if (!Same(tensor, part)) tensor.detach().copy_(part);
    at += tensor.numel();
  }
}

absl::Status BroadcastCoalesced(ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  const c10::NoGradGuard no_grad;
  for (const std::vector<at::Tensor>& together : Buffers(tensors)) {
    const at::Tensor buffer = Flatten(together);
    LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(buffer, root));
    if (group.rank() != root) Unflatten(buffer, together);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::internal
