#include "lockstep/ddp/internal/parameter_check.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/gather_texts.h"

namespace lockstep::ddp::internal {
namespace {

std::string Describe(const NamedTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  return absl::StrCat(parameter.name, " ", c10::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "] strides [", absl::StrJoin(tensor.strides(), ", "), "]",
                      tensor.requires_grad() ? "" : " frozen");
}

std::string Signature(const std::vector<NamedTensor>& parameters) {
  return absl::StrJoin(parameters, "\n",
                       [](std::string* out, const NamedTensor& p) { absl::StrAppend(out, Describe(p)); });
}

// The first line that differs. Line 0 has the options.
absl::Status Difference(int rank, const std::string& theirs, const std::string& rank_0s) {
  const std::vector<std::string> a = absl::StrSplit(rank_0s, '\n'), b = absl::StrSplit(theirs, '\n');
  size_t i = 0;
  while (i < std::min(a.size(), b.size()) && a[i] == b[i]) ++i;
  const auto side = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? lines[i] : std::string("nothing");
  };
  const std::string where =
      i == 0 ? "the ranks' options differ" : absl::StrCat("the ranks' models differ at parameter ", i - 1);
  return absl::InvalidArgumentError(absl::StrCat(where, ": rank 0 has ", side(a), ", rank ", rank, " has ", side(b)));
}

}  // namespace

absl::Status CheckSameParameters(comm::ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                                 const std::string& options) {
  constexpr absl::string_view kDoing = "comparing the ranks' parameters";
  const std::string mine = absl::StrCat(options, "\n", Signature(parameters));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      GatherTexts(group, "ddp_parameters_hash", absl::StrCat(std::hash<std::string>()(mine)), kDoing));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherTexts(group, "ddp_parameters", mine, kDoing));
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[rank] != all[0]) return Difference(rank, all[rank], all[0]);
  }
  return absl::OkStatus();
}

absl::Status CheckSameParametersAsPython(comm::ProcessGroup& group, const std::vector<NamedTensor>& trained) {
  const auto device = trained.front().tensor.device();
  const at::Tensor mine = at::tensor({static_cast<int64_t>(trained.size())}, at::kLong).to(device);
  std::vector<at::Tensor> counts;
  for (int rank = 0; rank < group.size(); ++rank) counts.push_back(at::empty_like(mine));
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(counts, mine));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto count = counts[rank].item<int64_t>();
    if (count == trained.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("the ranks' models differ: rank ", group.rank(), " has ",
                                                   trained.size(), " parameters, rank ", rank, " has ", count));
  }
  std::vector<int64_t> shapes;
  for (const NamedTensor& parameter : trained) {
    const at::Tensor& tensor = parameter.tensor;
    shapes.insert(shapes.end(), tensor.sizes().begin(), tensor.sizes().end());
    shapes.insert(shapes.end(), tensor.strides().begin(), tensor.strides().end());
  }
  const at::Tensor exchanged = at::tensor(shapes, at::kLong).to(device);
  LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(exchanged, /*root=*/0));
  const at::Tensor rank_0s = exchanged.cpu();
  const int64_t* next = rank_0s.data_ptr<int64_t>();
  for (const NamedTensor& parameter : trained) {
    const at::Tensor& tensor = parameter.tensor;
    const at::IntArrayRef sizes(next, tensor.dim()), strides(next + tensor.dim(), tensor.dim());
    next += 2 * tensor.dim();
    if (sizes == tensor.sizes() && strides == tensor.strides()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the ranks' models differ at parameter ", parameter.name, ": rank 0 has [", absl::StrJoin(sizes, ", "),
        "] strides [", absl::StrJoin(strides, ", "), "], rank ", group.rank(), " has ", Describe(parameter)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
