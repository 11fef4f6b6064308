#include "lockstep/ddp/internal/sparse_all_reduce.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// The ranks' parts of a tensor with at most `most` rows. Each rank contributes its first rows.
absl::StatusOr<std::vector<at::Tensor>> GatherRows(comm::ProcessGroup& group, const at::Tensor& rows, int64_t most) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = most;
  const at::Tensor padded = at::zeros(shape, rows.options());
  padded.narrow(0, 0, rows.size(0)).copy_(rows);
  std::vector<at::Tensor> gathered;
  for (int r = 0; r < group.size(); ++r) gathered.push_back(at::empty(shape, rows.options()));
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(gathered, padded));
  return gathered;
}

// The numbers of elements of all ranks' tensors: one row for each rank.
absl::StatusOr<at::Tensor> GatherCounts(comm::ProcessGroup& group, const std::vector<at::Tensor>& own, int64_t most) {
  const at::Tensor mine = at::zeros({most}, at::kLong);
  for (size_t i = 0; i < own.size(); ++i) mine[static_cast<int64_t>(i)] = own[i]._nnz();
  const at::Tensor sent = mine.to(own[0].device());
  const at::Tensor all = at::empty({group.size(), most}, sent.options());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, sent));
  return all.cpu();
}

}  // namespace

absl::StatusOr<at::Tensor> SparseAllReduce(comm::ProcessGroup& group, const std::vector<at::Tensor>& own,
                                           const std::vector<int>& bounds) {
  std::vector<at::Tensor> coalesced, own_indices, own_values;
  for (const at::Tensor& tensor : own) {
    coalesced.push_back(tensor.coalesce());
    own_indices.push_back(coalesced.back().indices().t());
    own_values.push_back(coalesced.back().values());
  }
  int64_t most_tensors = 0;
  for (int rank = 0; rank < group.size(); ++rank)
    most_tensors = std::max<int64_t>(most_tensors, bounds[rank + 1] - bounds[rank]);
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor counts, GatherCounts(group, coalesced, most_tensors));
  const int64_t most = counts.sum(1).max().item<int64_t>();
  if (most == 0) return coalesced[0];
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> indices,
                            GatherRows(group, at::cat(own_indices).contiguous(), most));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> values, GatherRows(group, at::cat(own_values), most));
  // Gloo's operations in Gloo's order: coalescing decides in which order equal indices are added.
  at::Tensor sum;
  for (int rank = 0; rank < group.size(); ++rank) {
    int64_t first = 0;
    for (int i = 0; i < bounds[rank + 1] - bounds[rank]; ++i) {
      const int64_t count = counts[rank][i].item<int64_t>();
      const at::Tensor part =
          at::sparse_coo_tensor(indices[rank].narrow(0, first, count).t(), values[rank].narrow(0, first, count),
                                own[0].sizes(), own[0].options());
      first += count;
      if (sum.defined()) {
        sum += part;
      } else {
        sum = part.clone();  // it grows
      }
    }
  }
  return sum.coalesce();
}

}  // namespace lockstep::ddp::internal
