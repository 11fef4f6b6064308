#include "lockstep/ddp/statistics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lockstep::ddp {
namespace {

using Interval = std::pair<int64_t, int64_t>;

// The total time covered by at least one of the intervals.
int64_t Covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  int64_t covered = 0, end = 0;
  for (const Interval& interval : intervals) {
    covered += std::max<int64_t>(0, interval.second - std::max(end, interval.first));
    end = std::max(end, interval.second);
  }
  return covered;
}

std::vector<Interval> Reductions(const StepStatistics& step, int64_t until) {
  std::vector<Interval> intervals;
  for (const BucketStatistics& bucket : step.buckets) {
    if (bucket.start >= 0 && bucket.end >= 0 && bucket.start < until)
      intervals.emplace_back(bucket.start, std::min(bucket.end, until));
  }
  return intervals;
}

double Milliseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

}  // namespace

int64_t StepStatistics::bytes() const {
  int64_t sum = 0;
  for (const BucketStatistics& bucket : buckets) sum += bucket.start >= 0 ? bucket.bytes : 0;
  return sum;
}

double StepStatistics::HiddenShare() const {
  const int64_t all = Covered(Reductions(*this, end));
  return all > 0 ? static_cast<double>(Covered(Reductions(*this, last_gradient))) / static_cast<double>(all) : 0;
}

std::string Summary(const StepStatistics& step) {
  std::string summary = absl::StrFormat(
      "rank %d step %d: %.2f ms, forward %.2f, backward %.2f; %d buckets, %.1f MB reduced in %.2f ms, %.0f %% hidden",
      step.rank, step.step, Milliseconds(step.end), Milliseconds(step.forward_end),
      Milliseconds(step.last_gradient - step.backward_begin), step.buckets.size(),
      static_cast<double>(step.bytes()) / 1e6, Milliseconds(Covered(Reductions(step, step.end))),
      100 * step.HiddenShare());
  for (const NonFiniteGradient& found : step.non_finite) {
    absl::StrAppend(&summary, "; not finite: ", found.parameter,
                    found.virtual_rank >= 0 ? absl::StrCat(" on virtual rank ", found.virtual_rank)
                    : found.rank >= 0       ? absl::StrCat(" on rank ", found.rank)
                                            : std::string(" in the sum"));
  }
  return summary;
}

}  // namespace lockstep::ddp
