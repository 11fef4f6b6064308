#include "lockstep/fsdp/internal/buffer_pool.h"

#include <c10/core/InferenceMode.h>

#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {

at::Tensor BufferPool::Allocate() {
  const c10::InferenceMode no_inference(false);  // an evaluation's buffer may be a training step's later
  absl::StatusOr<at::Tensor> buffer = group_->AllocateShared({bytes_}, at::kByte);
  ThrowIfError(buffer.status());
  ++allocated_;
  return *std::move(buffer);
}

void BufferPool::Reserve(size_t count) {
  while (free_.size() < count) free_.push_back(Allocate());
}

at::Tensor BufferPool::Take() {
  if (free_.empty()) return Allocate();
  at::Tensor taken = std::move(free_.back());
  free_.pop_back();
  return taken;
}

void BufferPool::Give(at::Tensor buffer) { free_.push_back(std::move(buffer)); }

}  // namespace lockstep::fsdp::internal
