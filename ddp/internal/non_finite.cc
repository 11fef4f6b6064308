#include "lockstep/ddp/internal/non_finite.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/internal/gather_texts.h"

namespace lockstep::ddp::internal {
namespace {

std::vector<NonFiniteGradient> OnRank(int rank, const std::string& names) {
  std::vector<NonFiniteGradient> found;
  for (const absl::string_view name : absl::StrSplit(names, '\n', absl::SkipEmpty()))
    found.push_back({rank, std::string(name)});
  return found;
}

}  // namespace

absl::StatusOr<std::vector<NonFiniteGradient>> WhoseNonFinite(comm::ProcessGroup& group,
                                                              const std::vector<std::string>& in_sum,
                                                              const std::vector<std::string>& mine) {
  const std::string names = absl::StrJoin(mine, "\n");
  std::vector<NonFiniteGradient> found;
  if (!group.OnlyLockstepRanks()) {
    found = OnRank(group.rank(), names);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                              GatherTexts(group, "ddp_non_finite", names, "asking whose gradient is not finite"));
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto theirs = OnRank(rank, all[rank]);
      found.insert(found.end(), theirs.begin(), theirs.end());
    }
  }
  if (!found.empty()) return found;
  for (const std::string& name : in_sum) found.push_back({-1, name});
  return found;
}

absl::Status NonFiniteError(const std::vector<NonFiniteGradient>& found) {
  return absl::DataLossError(absl::StrJoin(found, "; ", [](std::string* out, const NonFiniteGradient& gradient) {
    absl::StrAppend(out, "the gradient of ", gradient.parameter, " is not finite ",
                    gradient.rank < 0 ? std::string("once summed over the ranks, though it is on each")
                                      : absl::StrCat("on rank ", gradient.rank));
  }));
}

}  // namespace lockstep::ddp::internal
