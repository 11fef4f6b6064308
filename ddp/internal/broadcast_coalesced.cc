#include "lockstep/ddp/internal/broadcast_coalesced.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/buckets.h"

namespace lockstep::ddp::internal {
namespace {

constexpr int64_t kBufferBytes = int64_t{250} << 20;

at::Tensor Flatten(const std::vector<at::Tensor>& tensors, const std::vector<int>& bucket) {
  std::vector<at::Tensor> flat;
  for (const int i : bucket) flat.push_back(tensors[i].detach().reshape({-1}));
  return at::cat(flat);
}

void Unflatten(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors, const std::vector<int>& bucket) {
  int64_t offset = 0;
  for (const int i : bucket) {
    const at::Tensor& tensor = tensors[i];
    tensor.detach().copy_(buffer.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

}  // namespace

absl::Status BroadcastCoalesced(comm::ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  const c10::NoGradGuard no_grad;
  std::vector<BucketItem> items;
  for (const at::Tensor& tensor : tensors) {
    items.push_back({static_cast<int64_t>(tensor.nbytes()), tensor.scalar_type(), tensor.device()});
  }
  for (const std::vector<int>& bucket : AssignBuckets(items, {kBufferBytes}, BucketOrder::kFirstItem)) {
    const at::Tensor buffer = Flatten(tensors, bucket);
    LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(buffer, root));
    if (group.rank() != root) Unflatten(buffer, tensors, bucket);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
