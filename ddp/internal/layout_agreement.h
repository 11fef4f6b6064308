// How the ranks agree on the layout of their buckets. BucketPlan makes the decisions; here ranks exchange them.

#ifndef LOCKSTEP_DDP_INTERNAL_LAYOUT_AGREEMENT_H_
#define LOCKSTEP_DDP_INTERNAL_LAYOUT_AGREEMENT_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/bucket_layout.h"
#include "lockstep/ddp/internal/bucket_plan.h"

namespace lockstep::ddp::internal {

// Rank 0's layout. All ranks must call it with layouts of the same parameters. Two broadcasts of integers on `device`,
// as PyTorch issues them.
absl::StatusOr<Layout> LayoutOfRank0(comm::ProcessGroup& group, const Layout& mine, c10::Device device);

// InvalidArgument on every rank if two ranks' layouts differ. All ranks must call it and must be Lockstep ranks. It
// goes through the store.
absl::Status CheckSameLayout(comm::ProcessGroup& group, const BucketLayout& layout);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_LAYOUT_AGREEMENT_H_
