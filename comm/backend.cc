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

using Selection = std::map<c10::DeviceType, BackendInfo>;

// The one piece of global state: filled while the program is loaded, before main and before any other thread, and only
// read afterwards.
std::map<std::string, BackendInfo>& Registry() {
  static auto* const registry = new std::map<std::string, BackendInfo>();
  return *registry;
}

absl::Status NotLinked(absl::string_view name) {
  std::vector<std::string> linked;
  for (const auto& entry : Registry()) linked.push_back(entry.first);
  return absl::NotFoundError(
      absl::StrCat("backend \"", name, "\" is not linked into this program; linked: ",
                   linked.empty() ? "none (depend on @lockstep//comm/gloo, for one)" : absl::StrJoin(linked, ", ")));
}

absl::StatusOr<BackendInfo> Find(absl::string_view name) {
  const auto found = Registry().find(std::string(name));
  if (found == Registry().end()) return NotLinked(name);
  return found->second;
}

bool Usable(c10::DeviceType device) { return device != c10::DeviceType::CUDA || at::hasCUDA(); }

absl::StatusOr<Selection> SelectAuto() {
  Selection selection;
  for (const auto& entry : Registry()) {
    for (const c10::DeviceType device : entry.second.devices) {
      if (!Usable(device)) continue;
      const auto inserted = selection.emplace(device, entry.second);
      BackendInfo& chosen = inserted.first->second;
      if (entry.second.preference > chosen.preference) chosen = entry.second;
    }
  }
  if (selection.empty()) return NotLinked("auto");
  return selection;
}

absl::StatusOr<Selection> SelectPerDevice(absl::string_view spec) {
  Selection selection;
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
    LOCKSTEP_ASSIGN_OR_RETURN(BackendInfo info, Find(device_and_name.second));
    if (std::find(info.devices.begin(), info.devices.end(), device) == info.devices.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("backend \"", info.name, "\" does not take ", device_name, " tensors"));
    }
    if (!selection.emplace(device, std::move(info)).second) {
      return absl::InvalidArgumentError(absl::StrCat("backend \"", spec, "\" names ", device_name, " twice"));
    }
  }
  return selection;
}

}  // namespace

bool RegisterBackend(BackendInfo info) {
  const std::string name = info.name;
  CHECK(Registry().emplace(name, std::move(info)).second) << "backend \"" << name << "\" is registered twice";
  return true;
}

absl::StatusOr<Selection> SelectBackends(absl::string_view spec) {
  if (spec == "auto") return SelectAuto();
  if (absl::StrContains(spec, ':') || absl::StrContains(spec, ',')) return SelectPerDevice(spec);
  LOCKSTEP_ASSIGN_OR_RETURN(const BackendInfo info, Find(spec));
  Selection selection;
  for (const c10::DeviceType device : info.devices) {
    if (Usable(device)) selection.emplace(device, info);
  }
  return selection;
}

}  // namespace lockstep::comm
