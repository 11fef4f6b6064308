#include "lockstep/ddp/internal/flat.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <cstdint>

#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/bucket_plan.h"

namespace lockstep::ddp::internal {
namespace {

constexpr int64_t kBufferBytes = int64_t{250} << 20;

}  // namespace

at::Tensor Flatten(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.detach().reshape({-1}));
  return at::cat(flat);
}

void Unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

absl::Status BroadcastCoalesced(comm::ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root) {
  const c10::NoGradGuard no_grad;
  std::vector<BucketItem> items;
  for (const at::Tensor& tensor : tensors) {
    items.push_back({static_cast<int64_t>(tensor.nbytes()), tensor.scalar_type(), tensor.device()});
  }
  for (const std::vector<int>& bucket : AssignBuckets(items, {kBufferBytes}, BucketOrder::kFirstItem)) {
    std::vector<at::Tensor> together;
    for (const int i : bucket) together.push_back(tensors[i]);
    const at::Tensor buffer = Flatten(together);
    LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(buffer, root));
    if (group.rank() != root) Unflatten(buffer, together);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
