#include "lockstep/comm/backend.h"

#include <ATen/Context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"

namespace lockstep::comm {
namespace {

using Candidates = BackendCandidates;

// The only global state. It is filled while the program is loaded, before main and before any other thread starts, and
// only read afterwards.
std::map<std::string, BackendInfo>& Registry() {
  static auto* const registry = new std::map<std::string, BackendInfo>();
  return *registry;
}

absl::Status NotLinked(absl::string_view name) {
  const std::vector<std::string> linked = LinkedBackends();
  return absl::NotFoundError(
      absl::StrCat("backend \"", name, "\" is not linked into this program; linked: ",
                   linked.empty() ? "none (depend on @lockstep//comm:cpu_backends, or lockstep::comm_cpu in CMake)"
                                  : absl::StrJoin(linked, ", ")));
}

bool Usable(c10::DeviceType device) { return device != c10::DeviceType::CUDA || at::hasCUDA(); }

absl::StatusOr<Candidates> AllLinked() {
  Candidates candidates;
  candidates.is_auto = true;
  for (const auto& entry : Registry()) {
    for (const c10::DeviceType device : entry.second.devices) {
      if (Usable(device)) candidates.by_device[device].push_back(entry.second);
    }
  }
  if (candidates.by_device.empty()) return NotLinked("auto");
  for (auto& entry : candidates.by_device) {
    std::stable_sort(entry.second.begin(), entry.second.end(),
                     [](const BackendInfo& a, const BackendInfo& b) { return a.preference > b.preference; });
  }
  return candidates;
}

absl::StatusOr<Candidates> OnePerDevice(absl::string_view spec) {
  Candidates candidates;
  for (const absl::string_view part : absl::StrSplit(spec, ',')) {
    const std::pair<absl::string_view, absl::string_view> device_and_name =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::string device_name(device_and_name.first);
    if (device_name != "cpu" && device_name != "cuda") {
      return absl::InvalidArgumentError(absl::StrCat("backend \"", spec,
                                                     "\": expected a form such as \"gloo\" or "
                                                     "\"cpu:gloo,cuda:nccl\", found \"",
                                                     part, "\""));
    }
    const c10::DeviceType device = device_name == "cpu" ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
    LOCKSTEP_ASSIGN_OR_RETURN(BackendInfo info, FindBackend(device_and_name.second));
    if (std::find(info.devices.begin(), info.devices.end(), device) == info.devices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("backend \"", info.name, "\" does not take ", device_name, " tensors"));
    }
    if (!candidates.by_device.emplace(device, std::vector<BackendInfo>{std::move(info)}).second) {
      return absl::InvalidArgumentError(absl::StrCat("backend \"", spec, "\" names ", device_name, " twice"));
    }
  }
  return candidates;
}

absl::Status CanServe(const BackendInfo& info, const UnavailableBackends& unavailable, const BackendContext& context) {
  const auto found = unavailable.find(info.name);
  if (found != unavailable.end()) return absl::FailedPreconditionError(found->second);
  return info.usable ? info.usable(context) : absl::OkStatus();
}

// The first of `preferred` that can serve the group. If none can, the choice has no backend, only the reasons.
BackendChoice ChooseFrom(const std::vector<BackendInfo>& preferred, const UnavailableBackends& unavailable,
                         const BackendContext& context) {
  BackendChoice choice;
  auto next = preferred.begin();
  for (; next != preferred.end(); ++next) {
    const absl::Status serves = CanServe(*next, unavailable, context);
    if (serves.ok()) break;
    choice.passed_over.push_back({next->name, std::string(serves.message())});
  }
  if (next == preferred.end()) return choice;
  choice.backend = *next++;
  for (; next != preferred.end(); ++next) choice.less_preferred.push_back(next->name);
  return choice;
}

}  // namespace

bool RegisterBackend(BackendInfo info) {
  const std::string name = info.name;
  CHECK(Registry().emplace(name, std::move(info)).second) << "backend \"" << name << "\" is registered twice";
  return true;
}

std::vector<std::string> LinkedBackends() {
  std::vector<std::string> names;
  for (const auto& entry : Registry()) names.push_back(entry.first);
  return names;
}

absl::StatusOr<BackendInfo> FindBackend(absl::string_view name) {
  const auto found = Registry().find(std::string(name));
  if (found == Registry().end()) return NotLinked(name);
  return found->second;
}

absl::StatusOr<Candidates> ParseBackendSpec(absl::string_view spec) {
  if (spec == "auto") return AllLinked();
  if (absl::StrContains(spec, ':') || absl::StrContains(spec, ',')) return OnePerDevice(spec);
  LOCKSTEP_ASSIGN_OR_RETURN(const BackendInfo info, FindBackend(spec));
  Candidates candidates;
  for (const c10::DeviceType device : info.devices) {
    if (Usable(device)) candidates.by_device[device] = {info};
  }
  return candidates;
}

absl::StatusOr<std::map<c10::DeviceType, BackendChoice>> ChooseBackends(const Candidates& candidates,
                                                                        const UnavailableBackends& unavailable,
                                                                        const BackendContext& context) {
  std::map<c10::DeviceType, BackendChoice> choices;
  std::vector<std::string> reasons;
  for (const auto& [device, preferred] : candidates.by_device) {
    BackendChoice choice = ChooseFrom(preferred, unavailable, context);
    for (const BackendChoice::PassedOver& passed : choice.passed_over) {
      reasons.push_back(
          absl::StrCat("backend \"", passed.name, "\" cannot serve group \"", context.group, "\": ", passed.reason));
    }
    if (!choice.backend.name.empty()) choices.emplace(device, std::move(choice));
  }
  const bool complete = candidates.is_auto || choices.size() == candidates.by_device.size();
  if (!choices.empty() && complete) return choices;
  return absl::FailedPreconditionError(reasons.empty() ? "no backend serves a device of this machine"
                                                       : absl::StrJoin(reasons, "; "));
}

}  // namespace lockstep::comm
