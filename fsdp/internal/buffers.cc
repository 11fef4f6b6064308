#include "lockstep/fsdp/internal/buffers.h"

#include <c10/core/GradMode.h>

#include "lockstep/comm/internal/flat.h"

namespace lockstep::fsdp::internal {

absl::Status Buffers::Broadcast(comm::ProcessGroup& group) const {
  if (buffers_.empty() || group.size() == 1) return absl::OkStatus();
  return comm::internal::BroadcastCoalesced(group, buffers_, 0);
}

void Buffers::BeginVirtualRank(size_t place, size_t count) {
  if (count == 1) return;
  if (place == 0) at_begin_ = Copies();
  Restore(at_begin_);
}

void Buffers::EndVirtualRank(size_t place, size_t count) {
  if (count == 1) return;
  if (place == 0) of_first_ = Copies();
  if (place + 1 == count) Restore(of_first_);
}

std::vector<at::Tensor> Buffers::Copies() const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& buffer : buffers_) copies.push_back(buffer.clone());
  return copies;
}

void Buffers::Restore(const std::vector<at::Tensor>& saved) const {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < saved.size(); ++i) buffers_[i].copy_(saved[i]);
}

}  // namespace lockstep::fsdp::internal
