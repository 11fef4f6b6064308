#include "lockstep/ddp/internal/sparse_all_reduce.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// The ranks' parts of a tensor with at most `count` rows. Each rank contributes its first rows.
absl::StatusOr<std::vector<at::Tensor>> GatherRows(comm::ProcessGroup& group, const at::Tensor& rows,
                                                   const std::vector<int64_t>& counts, int64_t count) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = count;
  const at::Tensor padded = at::zeros(shape, rows.options());
  padded.narrow(0, 0, rows.size(0)).copy_(rows);
  std::vector<at::Tensor> gathered;
  for (int r = 0; r < group.size(); ++r) gathered.push_back(at::empty(shape, rows.options()));
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(gathered, padded));
  for (int r = 0; r < group.size(); ++r) gathered[r] = gathered[r].narrow(0, 0, counts[r]);
  return gathered;
}

absl::StatusOr<std::vector<int64_t>> GatherCounts(comm::ProcessGroup& group, int64_t count, c10::Device device) {
  const at::Tensor mine = at::tensor({count}, at::kLong).to(device);
  const at::Tensor all = at::empty({group.size()}, mine.options());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, mine));
  const at::Tensor host = all.cpu();
  return std::vector<int64_t>(host.data_ptr<int64_t>(), host.data_ptr<int64_t>() + group.size());
}

}  // namespace

absl::StatusOr<at::Tensor> SparseAllReduce(comm::ProcessGroup& group, const at::Tensor& sparse) {
  const at::Tensor mine = sparse.coalesce();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, GatherCounts(group, mine._nnz(), mine.device()));
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return mine;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> indices,
                            GatherRows(group, mine.indices().t().contiguous(), counts, most));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> values, GatherRows(group, mine.values(), counts, most));
  // Gloo's operations in Gloo's order: coalescing decides in which order equal indices are added.
  const auto part = [&](int rank) {
    return at::sparse_coo_tensor(indices[rank].t(), values[rank], mine.sizes(), mine.options());
  };
  at::Tensor sum = part(0);
  for (int rank = 1; rank < group.size(); ++rank) sum += part(rank);
  return sum.coalesce();
}

}  // namespace lockstep::ddp::internal
