#include "lockstep/comm/internal/argument_check.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/call.h"

namespace lockstep::comm::internal {
namespace {

std::string Named(absl::string_view name, int64_t index) {
  return index < 0 ? std::string(name) : absl::StrCat(name, " ", index);
}

absl::Status Differs(const at::Tensor& tensor, absl::string_view name, int64_t index, const at::Tensor& like,
                     absl::string_view in_what) {
  return absl::InvalidArgumentError(
      absl::StrCat(Named(name, index), " is ", Describe(tensor), ", expected ", in_what, Describe(like)));
}

absl::Status CheckStrided(const at::Tensor& tensor, bool contiguous) {
  if (!tensor.defined()) return absl::InvalidArgumentError("the tensor is undefined");
  if (tensor.layout() != at::kStrided) return absl::InvalidArgumentError("the tensor is not dense");
  if (contiguous ? !tensor.is_contiguous() : !tensor.is_non_overlapping_and_dense()) {
    return absl::InvalidArgumentError(
        absl::StrCat(contiguous ? "the tensor is not contiguous" : "the tensor has gaps or overlaps in memory",
                     ": its strides are [", absl::StrJoin(tensor.strides(), ", "), "]"));
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    return absl::InvalidArgumentError(
        "the tensor is a lazily conjugated or negated view: give what resolve_conj() or resolve_neg() returns");
  }
  if (tensor.is_quantized()) return absl::UnimplementedError("quantized tensors have no collectives");
  return absl::OkStatus();
}

bool Alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

}  // namespace

absl::Status CheckTensor(const at::Tensor& tensor) { return CheckStrided(tensor, /*contiguous=*/true); }

absl::Status CheckDense(const at::Tensor& tensor) { return CheckStrided(tensor, /*contiguous=*/false); }

absl::Status CheckNamed(const at::Tensor& tensor, absl::string_view name, int64_t index) {
  const absl::Status status = CheckTensor(tensor);
  return status.ok() ? status : Annotate(status, Named(name, index));
}

absl::Status CheckContiguous(const at::Tensor& tensor, const std::vector<at::Tensor>& list, absl::string_view name) {
  LOCKSTEP_RETURN_IF_ERROR(CheckTensor(tensor));
  for (size_t i = 0; i < list.size(); ++i) LOCKSTEP_RETURN_IF_ERROR(CheckNamed(list[i], name, i));
  return absl::OkStatus();
}

absl::Status CheckAlike(const at::Tensor& tensor, absl::string_view name, const at::Tensor& like) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNamed(tensor, name));
  return Alike(tensor, like) ? absl::OkStatus() : Differs(tensor, name, -1, like, "the dtype and device of ");
}

absl::Status CheckList(const std::vector<at::Tensor>& list, absl::string_view name, const at::Tensor& like, int size,
                       bool same_shape) {
  if (static_cast<int>(list.size()) != size) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " ", name, "s, one a rank, found ", list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const absl::Status status = CheckStrided(list[i], /*contiguous=*/!same_shape);
    if (!status.ok()) return Annotate(status, Named(name, i));
    if (same_shape && (!Alike(list[i], like) || list[i].sizes() != like.sizes())) {
      return Differs(list[i], name, i, like, "");
    }
    if (!Alike(list[i], like)) return Differs(list[i], name, i, like, "the dtype and device of ");
  }
  return absl::OkStatus();
}

absl::Status CheckMultiple(const at::Tensor& large, absl::string_view name, const at::Tensor& small, int size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(large, name, small));
  if (large.numel() == small.numel() * size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", Describe(large), ", expected ", small.numel() * size,
                                                 " elements: ", small.numel(), " for each of ", size, " ranks"));
}

absl::Status CheckSplits(const at::Tensor& tensor, absl::string_view name, const std::vector<int64_t>& splits,
                         int size) {
  if (tensor.dim() == 0) return absl::InvalidArgumentError(absl::StrCat(name, " has no dimension to split"));
  const int64_t rows = tensor.size(0);
  if (splits.empty()) {
    if (rows % size == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", Describe(tensor), ", whose first dimension ", size, " ranks cannot share equally"));
  }
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " splits [", absl::StrJoin(splits, ", "), "] of ", Describe(tensor), ": ", why));
  };
  if (static_cast<int>(splits.size()) != size) return refuse(absl::StrCat("expected ", size, ", one a rank"));
  for (const int64_t split : splits) {
    if (split < 0) return refuse("a split is negative");
  }
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  return sum == rows ? absl::OkStatus() : refuse(absl::StrCat("their sum is ", sum, ", expected ", rows));
}

absl::Status CheckEmptyUnlessRoot(const std::vector<at::Tensor>& list, absl::string_view name, int rank, int root) {
  if (rank == root || list.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected no ", name, "s on a rank that is not root ", root, ", found ", list.size()));
}

absl::Status CheckRank(int rank, absl::string_view what, int size) {
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", rank, " is not a rank of a group of ", size));
}

}  // namespace lockstep::comm::internal
