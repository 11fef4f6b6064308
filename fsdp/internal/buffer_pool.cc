#include "lockstep/fsdp/internal/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "absl/status/statusor.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/internal/device_streams.h"

namespace lockstep::fsdp::internal {

at::Tensor BufferPool::Allocate() {
  const c10::InferenceMode no_inference(false);  // an evaluation's buffer may be a training step's later
  ++allocated_;
  if (!device_.is_cpu()) return at::empty({bytes_}, at::TensorOptions(at::kByte).device(device_));
  absl::StatusOr<at::Tensor> buffer = group_->AllocateShared({bytes_}, at::kByte);
  ThrowIfError(buffer.status());
  return *std::move(buffer);
}

void BufferPool::Reserve(size_t count) {
  while (free_.size() < count) Give(Allocate());
}

at::Tensor BufferPool::Take() {
  if (free_.empty()) return Allocate();
  const Free taken = std::move(free_.front());
  free_.pop_front();
  AwaitStream(taken.stream);
  return taken.buffer;
}

void BufferPool::Give(at::Tensor buffer) {
  KeepForCurrentStream(buffer);
  free_.push_back({std::move(buffer), CurrentStream(device_)});
}

}  // namespace lockstep::fsdp::internal
