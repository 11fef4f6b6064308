#ifndef LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
#define LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// The sum of the ranks' sparse COO tensors in order, coalesced, for backends that cannot sum them. Rank r has the
// tensors [bounds[r], bounds[r + 1]), of which `own` are this rank's. Every rank gets the same bits, which do not
// depend on `bounds`, and are the bits of Gloo's sum of ranks with one tensor each. All ranks must call it with tensors
// of one shape, dtype and number of sparse dimensions; their numbers of elements may differ. Three all_gathers: of the
// numbers of elements, and of indices and values, padded to a rank's largest number.
absl::StatusOr<at::Tensor> SparseAllReduce(comm::ProcessGroup& group, const std::vector<at::Tensor>& own,
                                           const std::vector<int>& bounds);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
