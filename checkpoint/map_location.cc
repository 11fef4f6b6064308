#include "lockstep/checkpoint/map_location.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {

absl::StatusOr<c10::Device> ParseDevice(absl::string_view name) {
  const auto device = TorchStatusOr("", [&] { return c10::Device(std::string(name)); });
  if (device.ok()) return device;
  return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(name.substr(0, 40)), "\" is not a device"));
}

absl::StatusOr<c10::Device> MapLocation::Map(c10::Device saved) const {
  if (const auto* device = std::get_if<std::string>(&rule_)) return ParseDevice(*device);
  if (const auto* function = std::get_if<Function>(&rule_)) {
    return TorchStatusOr("map_location", [&] { return (*function)(saved); });
  }
  if (const auto* map = std::get_if<DeviceMap>(&rule_)) {
    for (const auto& [from, to] : *map) {
      LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, ParseDevice(from));
      if (device == saved) return ParseDevice(to);
    }
  }
  return saved;
}

}  // namespace lockstep::checkpoint
