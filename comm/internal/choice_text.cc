#include "lockstep/comm/internal/choice_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::internal {
namespace {

// The number of hosts; 0 if it is unknown.
size_t CountHosts(const std::vector<RankIdentity>& ranks) {
  std::vector<const RankIdentity*> hosts;
  for (const RankIdentity& rank : ranks) {
    const auto is_same = [&](const RankIdentity* host) { return OnOneHost(*host, rank); };
    if (std::none_of(hosts.begin(), hosts.end(), is_same)) hosts.push_back(&rank);
  }
  return hosts.size();
}

std::string HostsText(size_t hosts, size_t ranks) {
  if (hosts == 1) return "all ranks on one host";
  if (hosts == ranks) return "each rank on another host";
  return absl::StrCat(ranks, " ranks on ", hosts, " hosts");
}

// Reasons often begin with the backend's name.
std::string Text(const BackendChoice::PassedOver& passed) {
  if (absl::StartsWith(passed.reason, absl::StrCat(passed.name, " "))) return passed.reason;
  return absl::StrCat(passed.name, ": ", passed.reason);
}

// The backend that these ranks could share memory through, if this program has not linked it.
std::string Missing(const BackendChoice& choice, size_t hosts, size_t ranks) {
  if (choice.backend.name != "gloo" || hosts == 0 || hosts == ranks) return "";
  const std::string faster = hosts == 1 ? "shm" : "hierarchical";
  const auto is_it = [&](const BackendChoice::PassedOver& passed) { return passed.name == faster; };
  if (std::any_of(choice.passed_over.begin(), choice.passed_over.end(), is_it)) return "";
  return absl::StrCat(faster,
                      " is faster but not linked: depend on @lockstep//comm:cpu_backends, or "
                      "lockstep::comm_cpu in CMake");
}

// `hosts` is 0 for a device type whose backends do not depend on the hosts.
std::vector<std::string> Reasons(const BackendChoice& choice, size_t hosts, size_t ranks) {
  std::vector<std::string> reasons;
  if (hosts > 0) reasons.push_back(HostsText(hosts, ranks));
  for (const BackendChoice::PassedOver& passed : choice.passed_over) reasons.push_back(Text(passed));
  const std::string missing = Missing(choice, hosts, ranks);
  if (!missing.empty()) reasons.push_back(missing);
  if (!choice.less_preferred.empty()) {
    reasons.push_back(absl::StrCat("also linked: ", absl::StrJoin(choice.less_preferred, ", ")));
  }
  return reasons;
}

}  // namespace

std::string ChoiceText(const std::map<c10::DeviceType, BackendChoice>& choices, bool is_auto,
                       const BackendContext& context) {
  std::vector<std::string> parts;
  for (const auto& [device, choice] : choices) {
    std::string part = absl::StrCat(c10::DeviceTypeName(device, /*lower_case=*/true), ":", choice.backend.name);
    const size_t hosts = device == c10::DeviceType::CPU ? CountHosts(context.ranks) : 0;
    const std::vector<std::string> reasons = Reasons(choice, hosts, context.ranks.size());
    if (is_auto && !reasons.empty()) absl::StrAppend(&part, " (", absl::StrJoin(reasons, "; "), ")");
    parts.push_back(std::move(part));
  }
  return absl::StrCat("rank ", context.rank, " of ", context.size, ": group \"", context.group, "\" over ",
                      absl::StrJoin(parts, ", "), is_auto ? "" : ", as the program asks");
}

}  // namespace lockstep::comm::internal
