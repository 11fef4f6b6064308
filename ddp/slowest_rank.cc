#include "lockstep/ddp/slowest_rank.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/ddp/internal/gather_texts.h"

namespace lockstep::ddp {
namespace {

// A rank's message to the others.
struct Pace {
  std::string name;
  int64_t mean = 0;  // nanoseconds
  int steps = 0;
};

// The identities of ranks that are threads of one process differ only by the number.
Pace PaceOf(int rank, const std::deque<StepStatistics>& steps, int last_steps) {
  Pace pace;
  pace.name = comm::NameOf(comm::IdentityOfThisProcess(rank));
  int64_t total = 0;
  for (auto step = steps.rbegin(); step != steps.rend() && pace.steps < last_steps; ++step) {
    if (step->last_gradient < 0) continue;  // no parameter was used
    total += step->last_gradient - step->compute_begin;
    ++pace.steps;
  }
  if (pace.steps > 0) pace.mean = total / pace.steps;
  return pace;
}

std::string Encode(const Pace& pace) { return absl::StrCat(pace.steps, "\n", pace.mean, "\n", pace.name); }

absl::StatusOr<Pace> Decode(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  Pace pace;
  if (lines.size() != 3 || !absl::SimpleAtoi(lines[0], &pace.steps) || !absl::SimpleAtoi(lines[1], &pace.mean))
    return absl::InternalError(absl::StrCat("expected a rank's steps and times in the store, found \"", text, "\""));
  pace.name = lines[2];
  return pace;
}

absl::StatusOr<std::vector<Pace>> Exchange(comm::ProcessGroup& group, const Pace& mine) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      internal::GatherTexts(group, "ddp_slowest_rank", Encode(mine), "asking for the ranks' times"));
  std::vector<Pace> paces;
  for (const std::string& text : texts) {
    LOCKSTEP_ASSIGN_OR_RETURN(Pace pace, Decode(text));
    if (pace.steps == 0) return absl::FailedPreconditionError(absl::StrCat(pace.name, " has not averaged a step yet"));
    paces.push_back(std::move(pace));
  }
  return paces;
}

int64_t Median(const std::vector<Pace>& paces) {
  std::vector<int64_t> means;
  for (const Pace& pace : paces) means.push_back(pace.mean);
  std::sort(means.begin(), means.end());
  return (means[(means.size() - 1) / 2] + means[means.size() / 2]) / 2;
}

absl::StatusOr<SlowestRank> Find(comm::ProcessGroup& group, const std::deque<StepStatistics>& steps, int last_steps) {
  if (last_steps <= 0)
    return absl::InvalidArgumentError(absl::StrCat("last_steps is ", last_steps, ", expected a positive number"));
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(group)) {
    return absl::FailedPreconditionError(
        "the group may have ranks that are not Lockstep's, such as Python's, which would not answer");
  }
  LOCKSTEP_RETURN_IF_ERROR(group.failure());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Pace> paces, Exchange(group, PaceOf(group.rank(), steps, last_steps)));
  const auto slowest =
      std::max_element(paces.begin(), paces.end(), [](const Pace& a, const Pace& b) { return a.mean < b.mean; });
  SlowestRank result;
  result.rank = static_cast<int>(slowest - paces.begin());
  result.name = slowest->name;
  result.mean = absl::Nanoseconds(slowest->mean);
  result.median = absl::Nanoseconds(Median(paces));
  result.ranks = group.size();
  result.steps = slowest->steps;
  return result;
}

}  // namespace

double SlowestRank::Lag() const { return median > absl::ZeroDuration() ? absl::FDivDuration(mean, median) - 1 : 0; }

std::string Describe(const SlowestRank& slowest) {
  return absl::StrFormat("%s is the slowest of %d: %.1f ms a step, %.0f %% more than the median %.1f ms (%d steps)",
                         slowest.name, slowest.ranks, absl::ToDoubleMilliseconds(slowest.mean), 100 * slowest.Lag(),
                         absl::ToDoubleMilliseconds(slowest.median), slowest.steps);
}

absl::StatusOr<SlowestRank> FindSlowestRank(comm::ProcessGroup& group, const std::deque<StepStatistics>& steps,
                                            int last_steps) {
  absl::StatusOr<SlowestRank> slowest = Find(group, steps, last_steps);
  if (slowest.ok()) return slowest;
  return Annotate(slowest.status(), absl::StrCat("rank ", group.rank(), ": FindSlowestRank"));
}

}  // namespace lockstep::ddp
