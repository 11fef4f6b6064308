#include "lockstep/ddp/internal/non_finite.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/ddp/internal/gather_texts.h"
#include "lockstep/ddp/internal/kernels.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {
namespace {

// One line for each: "0 fc.weight".
std::string ToText(const std::vector<NonFiniteGradient>& gradients, bool virtual_ranks) {
  return absl::StrJoin(gradients, "\n", [virtual_ranks](std::string* out, const NonFiniteGradient& gradient) {
    absl::StrAppend(out, virtual_ranks ? gradient.virtual_rank : gradient.rank, " ", gradient.parameter);
  });
}

std::vector<NonFiniteGradient> FromText(const std::string& text, bool virtual_ranks) {
  std::vector<NonFiniteGradient> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    NonFiniteGradient gradient;
    int& rank = virtual_ranks ? gradient.virtual_rank : gradient.rank;
    if (!absl::SimpleAtoi(parts.first, &rank)) continue;
    gradient.parameter = std::string(parts.second);
    found.push_back(std::move(gradient));
  }
  return found;
}

// The non-finite gradients of all ranks. `mine`: this rank's. Goes through the group's store: every rank must call it.
// If Python ranks are in the group, only this rank's part is available.
absl::StatusOr<std::vector<NonFiniteGradient>> WhoseNonFinite(comm::ProcessGroup& group,
                                                              const std::vector<NonFiniteGradient>& mine,
                                                              bool virtual_ranks) {
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(group)) return mine;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      GatherTexts(group, "ddp_non_finite", ToText(mine, virtual_ranks), "asking whose gradient is not finite"));
  std::vector<NonFiniteGradient> found;
  for (const std::string& text : all) {
    const auto theirs = FromText(text, virtual_ranks);
    found.insert(found.end(), theirs.begin(), theirs.end());
  }
  return found;
}

// "the gradient of fc.weight is not finite on rank 1; ..."
absl::Status NonFiniteError(const std::vector<NonFiniteGradient>& found) {
  return absl::DataLossError(absl::StrJoin(found, "; ", [](std::string* out, const NonFiniteGradient& gradient) {
    absl::StrAppend(out, "the gradient of ", gradient.parameter, " is not finite ",
                    gradient.virtual_rank >= 0 ? absl::StrCat("on virtual rank ", gradient.virtual_rank)
                    : gradient.rank >= 0       ? absl::StrCat("on rank ", gradient.rank)
                                               : std::string("in the sum over the ranks, though it is finite on each"));
  }));
}

}  // namespace

NonFiniteCheck::NonFiniteCheck(NonFinite reaction, bool virtual_ranks, comm::ProcessGroup* group,
                               const std::vector<ReducedParameter>* parameters, GradientBuckets* buckets,
                               StepRecorder* recorder)
    : reaction_(reaction),
      virtual_ranks_(virtual_ranks),
      group_(*group),
      parameters_(*parameters),
      buckets_(*buckets),
      recorder_(*recorder) {}

void NonFiniteCheck::Add(int rank, int parameter) {
  NonFiniteGradient gradient;
  (virtual_ranks_ ? gradient.virtual_rank : gradient.rank) = rank;
  gradient.parameter = parameters_[parameter].name;
  own_.push_back(std::move(gradient));
}

void NonFiniteCheck::LookAtBucket(int bucket, int rank) {
  if (!looks()) return;
  for (const int i : buckets_.NonFinite(bucket, buckets_[bucket].buffer)) Add(rank, i);
}

void NonFiniteCheck::LookAtGradients(int virtual_rank) {
  if (!looks()) return;
  for (int b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    for (const int i : bucket.parameters) {
      const at::Tensor& gradient = parameters_[i].tensor.grad();
      if (!gradient.defined()) continue;
      // In a bucket of fewer bits it may be infinite.
      if (HasNonFinite(bucket.sparse ? gradient._values() : gradient.to(bucket.buffer.scalar_type())))
        Add(virtual_rank, i);
    }
  }
}

absl::Status NonFiniteCheck::LookAtResults(int first, const std::vector<at::Tensor>& results) {
  if (!looks()) return absl::OkStatus();
  std::vector<NonFiniteGradient> in_sum;
  for (size_t i = 0; i < results.size(); ++i) {
    const int bucket = first + static_cast<int>(i);
    buckets_.TakeResult(bucket, results[i]);
    for (const int parameter : buckets_.NonFinite(bucket, results[i])) {
      in_sum.emplace_back();
      in_sum.back().parameter = parameters_[parameter].name;
    }
  }
  if (in_sum.empty()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<NonFiniteGradient> found, WhoseNonFinite(group_, own_, virtual_ranks_));
  if (found.empty()) found = std::move(in_sum);
  recorder_.SetNonFinite(found);
  return reaction_ == NonFinite::kReport ? absl::OkStatus() : NonFiniteError(found);
}

}  // namespace lockstep::ddp::internal
