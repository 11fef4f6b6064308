#include "lockstep/ddp/internal/restored_layout.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/gather_texts.h"

namespace lockstep::ddp::internal {
namespace {

constexpr int kNowhere = -1;

std::string Line(const std::vector<std::string>& bucket) { return absl::StrJoin(bucket, ", "); }

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " on ", tensor.device().str());
}

template <typename... Parts>
absl::Status Misfit(size_t bucket, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " of the layout ", parts...));
}

// Whether the parameter may be in a bucket with `first`.
absl::Status CheckTogether(size_t bucket, const ReducedParameter& first, const ReducedParameter& parameter) {
  if (first.sparse || parameter.sparse) {
    const std::string& sparse = first.sparse ? first.name : parameter.name;
    return Misfit(bucket, "has ", sparse, ", whose gradient is sparse, and others: expected it alone");
  }
  const std::string a = Describe(first.tensor), b = Describe(parameter.tensor);
  if (a == b) return absl::OkStatus();
  return Misfit(bucket, "has ", first.name, ", ", a, ", and ", parameter.name, ", ", b,
                ": expected one dtype and device");
}

}  // namespace

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

absl::StatusOr<std::vector<std::vector<int>>> NumbersOf(const BucketLayout& layout,
                                                        const std::vector<ReducedParameter>& parameters) {
  std::map<std::string, int> numbers;
  std::vector<int> bucket_of(parameters.size(), kNowhere);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].delayed) numbers[parameters[i].name] = static_cast<int>(i);
  }
  std::vector<std::vector<int>> result(layout.size());
  for (size_t bucket = 0; bucket < layout.size(); ++bucket) {
    if (layout[bucket].empty()) return Misfit(bucket, "is empty");
    for (const std::string& name : layout[bucket]) {
      const auto found = numbers.find(name);
      if (found == numbers.end()) return Misfit(bucket, "has ", name, ", which is not a parameter that buckets reduce");
      int& before = bucket_of[found->second];
      if (before != kNowhere) return Misfit(bucket, "has ", name, ", which bucket ", before, " has already");
      before = static_cast<int>(bucket);
      result[bucket].push_back(found->second);
      if (result[bucket].size() > 1) {
        LOCKSTEP_RETURN_IF_ERROR(CheckTogether(bucket, parameters[result[bucket].front()], parameters[found->second]));
      }
    }
  }
  for (const auto& [name, number] : numbers) {
    if (bucket_of[number] == kNowhere)
      return absl::InvalidArgumentError(absl::StrCat("no bucket of the layout has parameter ", name));
  }
  return result;
}

}  // namespace lockstep::ddp::internal
