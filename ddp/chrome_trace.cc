#include "lockstep/ddp/chrome_trace.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep::ddp {
namespace {

using Json = nlohmann::json;

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

std::string ChromeTrace(const std::vector<StepStatistics>& steps) {
  Json events = Json::array();
  std::set<std::pair<int64_t, int64_t>> rows;
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
