#include "lockstep/ddp/internal/non_finite.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/ddp/internal/gather_texts.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {
namespace {

std::vector<NonFiniteGradient> OnRank(int rank, const std::string& names) {
  std::vector<NonFiniteGradient> found;
  for (const absl::string_view name : absl::StrSplit(names, '\n', absl::SkipEmpty()))
    found.push_back({rank, std::string(name)});
  return found;
}

// The ranks whose gradients made the averages of the parameters `in_sum` not finite. `mine`: the parameters whose
// gradient was not finite on this rank. Goes through the group's store: every rank must call it. If Python ranks are in
// the group, only this rank's part is available.
absl::StatusOr<std::vector<NonFiniteGradient>> WhoseNonFinite(comm::ProcessGroup& group,
                                                              const std::vector<std::string>& in_sum,
                                                              const std::vector<std::string>& mine) {
  const std::string names = absl::StrJoin(mine, "\n");
  std::vector<NonFiniteGradient> found;
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(group)) {
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

// "the gradient of fc.weight is not finite on rank 1; ..."
absl::Status NonFiniteError(const std::vector<NonFiniteGradient>& found) {
  return absl::DataLossError(absl::StrJoin(found, "; ", [](std::string* out, const NonFiniteGradient& gradient) {
    absl::StrAppend(out, "the gradient of ", gradient.parameter, " is not finite ",
                    gradient.rank < 0 ? std::string("in the sum over the ranks, though it is finite on each")
                                      : absl::StrCat("on rank ", gradient.rank));
  }));
}

}  // namespace

NonFiniteCheck::NonFiniteCheck(NonFinite reaction, comm::ProcessGroup* group,
                               const std::vector<ReducedParameter>* parameters, GradientBuckets* buckets,
                               StepRecorder* recorder)
    : reaction_(reaction), group_(*group), parameters_(*parameters), buckets_(*buckets), recorder_(*recorder) {}

void NonFiniteCheck::LookAtOwn(int bucket) {
  if (!looks()) return;
  const std::vector<int> found = buckets_.NonFinite(bucket, buckets_[bucket].buffer);
  own_.insert(own_.end(), found.begin(), found.end());
}

absl::Status NonFiniteCheck::LookAtResults(int first, const std::vector<at::Tensor>& results) {
  if (!looks()) return absl::OkStatus();
  std::vector<int> in_sum;
  for (size_t i = 0; i < results.size(); ++i) {
    const int bucket = first + static_cast<int>(i);
    buckets_.TakeResult(bucket, results[i]);
    const std::vector<int> found = buckets_.NonFinite(bucket, results[i]);
    in_sum.insert(in_sum.end(), found.begin(), found.end());
  }
  if (in_sum.empty()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<NonFiniteGradient> found, WhoseNonFinite(group_, Names(in_sum), Names(own_)));
  recorder_.SetNonFinite(found);
  return reaction_ == NonFinite::kReport ? absl::OkStatus() : NonFiniteError(found);
}

std::vector<std::string> NonFiniteCheck::Names(const std::vector<int>& parameters) const {
  std::vector<std::string> names;
  for (const int i : parameters) names.push_back(parameters_[i].name);
  return names;
}

}  // namespace lockstep::ddp::internal
