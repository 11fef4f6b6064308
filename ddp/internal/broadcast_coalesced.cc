#include "lockstep/ddp/internal/broadcast_coalesced.h"

#include <c10/core/GradMode.h>

#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/buckets.h"
#include "lockstep/ddp/internal/flat.h"

namespace lockstep::ddp::internal {
namespace {

constexpr int64_t kBufferBytes = int64_t{250} << 20;

}  // namespace

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
