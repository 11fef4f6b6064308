#include "lockstep/base/slurm.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

bool IsHostCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; }

// The first number of "001-003,7", the inside of a bracket; empty if there is none.
absl::string_view FirstNumber(absl::string_view ranges) {
  size_t length = 0;
  while (length < ranges.size() && absl::ascii_isdigit(ranges[length])) ++length;
  const bool ends_well = length == ranges.size() || ranges[length] == '-' || ranges[length] == ',';
  return ends_well ? ranges.substr(0, length) : absl::string_view();
}

}  // namespace

std::optional<std::string> FirstSlurmHost(absl::string_view list) {
  std::string host;
  while (!list.empty() && list[0] != ',') {
    if (list[0] != '[') {
      if (!IsHostCharacter(list[0])) return std::nullopt;
      host += list[0];
      list.remove_prefix(1);
      continue;
    }
    const size_t end = list.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view number = FirstNumber(list.substr(1, end - 1));
    if (number.empty()) return std::nullopt;
    host.append(number.data(), number.size());
    list.remove_prefix(end + 1);
  }
  return host.empty() ? std::nullopt : std::make_optional(host);
}

std::optional<int> SlurmTasksOnNode(absl::string_view list, int node) {
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    int tasks, nodes = 1;
    const std::pair<absl::string_view, absl::string_view> both = absl::StrSplit(part, absl::MaxSplits("(x", 1));
    if (!absl::SimpleAtoi(both.first, &tasks) || tasks < 1) return std::nullopt;
    const bool repeats = both.first.size() < part.size();
    if (repeats && !absl::SimpleAtoi(absl::StripSuffix(both.second, ")"), &nodes)) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

std::optional<int> SlurmPort(absl::string_view job_id) {
  uint64_t id;
  if (!absl::SimpleAtoi(job_id, &id)) return std::nullopt;
  return static_cast<int>(15000 + id % 10000);
}

}  // namespace lockstep
