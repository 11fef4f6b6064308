#ifndef LOCKSTEP_DDP_INTERNAL_RESTORED_LAYOUT_H_
#define LOCKSTEP_DDP_INTERNAL_RESTORED_LAYOUT_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/bucket_layout.h"
#include "lockstep/ddp/internal/reducer.h"

namespace lockstep::ddp::internal {

// InvalidArgument on every rank if two ranks' layouts differ. Through the store; all ranks must call it, and be
// Lockstep's.
absl::Status CheckSameLayout(comm::ProcessGroup& group, const BucketLayout& layout);

// The numbers in `parameters` of those that `layout` names. InvalidArgument, naming the bucket and the parameter, where
// it does not fit: all parameters that are not delayed must be there, once, and share a bucket only with others of
// their dtype and device, and not at all where their gradients are sparse.
absl::StatusOr<std::vector<std::vector<int>>> NumbersOf(const BucketLayout& layout,
                                                        const std::vector<ReducedParameter>& parameters);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_RESTORED_LAYOUT_H_
