#ifndef LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
#define LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// The sum of the ranks' sparse COO tensors, coalesced, for backends that cannot sum them. Every rank gets the same
// bits, which are the bits of Gloo's sum. All ranks must call it with tensors of one shape, dtype and number of sparse
// dimensions; their numbers of elements may differ. Three all_gathers: of the numbers of elements, and of indices and
// values, padded to the largest number.
absl::StatusOr<at::Tensor> SparseAllReduce(comm::ProcessGroup& group, const at::Tensor& sparse);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_SPARSE_ALL_REDUCE_H_
