#include "lockstep/elastic/chaos/internal/summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::elastic::chaos::internal {
namespace {

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.0f", absl::ToDoubleMilliseconds(duration));
}

}  // namespace

absl::Duration Percentile(std::vector<absl::Duration> values, int percent) {
  std::sort(values.begin(), values.end());
  const size_t rank = (values.size() * percent + 99) / 100;
  return values[std::max<size_t>(rank, 1) - 1];
}

void Summary::Add(FaultKind kind, absl::Duration next_step, absl::Duration pause) {
  kinds_[kind].next_steps.push_back(next_step);
  kinds_[kind].pauses.push_back(pause);
}

int Summary::faults() const {
  size_t faults = 0;
  for (const auto& [kind, times] : kinds_) faults += times.next_steps.size();
  return static_cast<int>(faults);
}

std::string Summary::Table() const {
  std::string table =
      "| fault | number | next step after, ms: p50 | p99 | worst | longest pause, ms: p50 | p99 | worst |\n";
  absl::StrAppend(&table, "|---|---|---|---|---|---|---|---|\n");
  const auto add = [&table](const std::string& name, const Times& times) {
    absl::StrAppend(&table, "| ", name, " | ", times.next_steps.size());
    for (const auto* values : {&times.next_steps, &times.pauses}) {
      for (const int percent : {50, 99, 100})
        absl::StrAppend(&table, " | ", Milliseconds(Percentile(*values, percent)));
    }
    absl::StrAppend(&table, " |\n");
  };
  Times all;
  for (const auto& [kind, times] : kinds_) {
    add(FaultName(kind), times);
    all.next_steps.insert(all.next_steps.end(), times.next_steps.begin(), times.next_steps.end());
    all.pauses.insert(all.pauses.end(), times.pauses.begin(), times.pauses.end());
  }
  if (!all.next_steps.empty()) add("all", all);
  return table;
}

}  // namespace lockstep::elastic::chaos::internal
