#include "lockstep/ddp/statistics.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace lockstep::ddp {
namespace {

using Json = nlohmann::json;
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

Json Event(const StepStatistics& step, int row, const std::string& name, int64_t begin, int64_t end, Json arguments) {
  return {{"ph", "X"},
          {"name", name},
          {"pid", step.rank},
          {"tid", row},
          {"ts", static_cast<double>(step.unix_time + begin) / 1e3},
          {"dur", static_cast<double>(end - begin) / 1e3},
          {"args", std::move(arguments)}};
}

Json Name(const char* what, int pid, int tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

constexpr int kComputeRow = 0;

void AddStep(const StepStatistics& step, Json& events) {
  const Json number = {{"step", step.step}};
  if (step.forward_end >= 0) events.push_back(Event(step, kComputeRow, "forward", 0, step.forward_end, number));
  if (step.backward_begin >= 0 && step.last_gradient >= 0)
    events.push_back(Event(step, kComputeRow, "backward", step.backward_begin, step.last_gradient, number));
  if (step.last_gradient >= 0 && step.end >= 0)
    events.push_back(Event(step, kComputeRow, "wait for buckets", step.last_gradient, step.end, number));
  for (const BucketStatistics& bucket : step.buckets) {
    if (bucket.start < 0 || bucket.end < 0) continue;
    const Json arguments = {{"step", step.step},
                            {"bytes", bucket.bytes},
                            {"ready_us", static_cast<double>(bucket.ready) / 1e3},
                            {"parameters", bucket.parameters ? *bucket.parameters : std::vector<std::string>()}};
    // One row for each bucket, since their reductions overlap.
    events.push_back(
        Event(step, 1 + bucket.index, absl::StrCat("bucket ", bucket.index), bucket.start, bucket.end, arguments));
  }
}

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
                    found.rank < 0 ? std::string(" in the sum") : absl::StrCat(" on rank ", found.rank));
  }
  return summary;
}

std::string ChromeTrace(const std::vector<StepStatistics>& steps) {
  Json events = Json::array();
  std::set<Interval> rows;
  for (const StepStatistics& step : steps) {
    rows.emplace(step.rank, kComputeRow);
    for (const BucketStatistics& bucket : step.buckets) rows.emplace(step.rank, 1 + bucket.index);
  }
  for (const auto& [rank, row] : rows) {
    if (row == kComputeRow) events.push_back(Name("process_name", rank, 0, absl::StrCat("rank ", rank)));
    events.push_back(
        Name("thread_name", rank, row, row == kComputeRow ? std::string("compute") : absl::StrCat("bucket ", row - 1)));
  }
  for (const StepStatistics& step : steps) AddStep(step, events);
  return Json({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}).dump();
}

absl::Status WriteChromeTrace(absl::string_view path, const std::vector<StepStatistics>& steps) {
  const auto failed = [&] { return absl::ErrnoToStatus(errno, absl::StrCat("the trace file ", path)); };
  std::FILE* const file = std::fopen(std::string(path).c_str(), "we");
  if (!file) return failed();
  const std::string trace = ChromeTrace(steps);
  const absl::Status written =
      std::fwrite(trace.data(), 1, trace.size(), file) == trace.size() && std::fflush(file) == 0 ? absl::OkStatus()
                                                                                                 : failed();
  const absl::Status closed = std::fclose(file) == 0 ? absl::OkStatus() : failed();
  return written.ok() ? closed : written;
}

}  // namespace lockstep::ddp
