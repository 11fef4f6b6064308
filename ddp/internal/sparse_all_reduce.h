#ifndef LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
#define LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// The sum of the ranks' sparse COO tensors, coalesced, the same bits on every rank: those of Gloo's own sum, for
// backends that have none. All ranks must call it with tensors of one shape, dtype and number of sparse dimensions; how
// many elements each has may differ. Three all_gathers: of the numbers of elements, and, padded to the largest, of
// indices and values.
absl::StatusOr<at::Tensor> SparseAllReduce(comm::ProcessGroup& group, const at::Tensor& sparse);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
