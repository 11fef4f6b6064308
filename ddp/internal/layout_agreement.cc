#include "lockstep/ddp/internal/layout_agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/gather_texts.h"

namespace lockstep::ddp::internal {
namespace {

std::string Line(const std::vector<std::string>& bucket) { return absl::StrJoin(bucket, ", "); }

// Replaces `values` with rank 0's, which are equally many.
absl::Status TakeFromRank0(comm::ProcessGroup& group, std::vector<int>& values, c10::Device device) {
  const at::Tensor tensor = at::tensor(values, at::kInt).to(device);
  LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(tensor, /*root=*/0));
  const at::Tensor host = tensor.cpu();
  values.assign(host.data_ptr<int>(), host.data_ptr<int>() + host.numel());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Layout> LayoutOfRank0(comm::ProcessGroup& group, const Layout& mine, c10::Device device) {
  PackedLayout packed = Pack(mine);
  LOCKSTEP_RETURN_IF_ERROR(TakeFromRank0(group, packed.parameters, device));
  packed.sizes.resize(packed.parameters.back());
  LOCKSTEP_RETURN_IF_ERROR(TakeFromRank0(group, packed.sizes, device));
  return Unpack(packed);
}

absl::Status CheckSameLayout(comm::ProcessGroup& group, const BucketLayout& layout) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherTexts(group, "ddp_bucket_layout",
                  absl::StrJoin(layout, "\n", [](std::string* out, const auto& b) { absl::StrAppend(out, Line(b)); }),
                  "comparing the ranks' bucket layouts"));
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::vector<std::string> a = absl::StrSplit(all[0], '\n'), b = absl::StrSplit(all[rank], '\n');
    const auto differing = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto side = [](auto line, const auto& lines) {
      return line == lines.end() || line->empty() ? std::string("nothing") : *line;
    };
    return absl::InvalidArgumentError(absl::StrCat("the ranks' layouts differ at bucket ", differing.first - a.begin(),
                                                   ": rank 0 has ", side(differing.first, a), ", rank ", rank, " has ",
                                                   side(differing.second, b)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::ddp::internal
