#include "lockstep/ddp/internal/parameter_check.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

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

// The first line in which the two differ.
absl::Status Difference(int rank, const std::string& mine, const std::string& rank_0s) {
  const std::vector<std::string> a = absl::StrSplit(rank_0s, '\n'), b = absl::StrSplit(mine, '\n');
  size_t i = 0;
  while (i < std::min(a.size(), b.size()) && a[i] == b[i]) ++i;
  const auto side = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? lines[i] : std::string("nothing");
  };
  return absl::InvalidArgumentError(absl::StrCat("the ranks' models differ at parameter ", i, ": rank 0 has ", side(a),
                                                 ", rank ", rank, " has ", side(b)));
}

absl::Status Compare(c10d::Store& store, const std::string& prefix, int rank, int size, const std::string& mine) {
  const auto key = [&](int r) { return absl::StrCat(prefix, "/", r); };
  store.set(key(rank), mine);
  const std::string rank_0s = store.get_to_str(key(0));
  for (int r = 1; r < size; ++r) {
    const std::string other = r == rank ? mine : store.get_to_str(key(r));
    if (other != rank_0s) return Difference(r, other, rank_0s);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSameParameters(comm::ProcessGroup& group, const std::vector<NamedTensor>& parameters) {
  const std::string prefix = group.NextKey("ddp_parameters");
  absl::Status same;
  const absl::Status spoken = TorchStatus("comparing the ranks' parameters", [&] {
    same = Compare(*group.store(), prefix, group.rank(), group.size(), Signature(parameters));
  });
  return spoken.ok() ? same : spoken;
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
