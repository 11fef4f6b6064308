// The devices onto which a checkpoint's tensors are loaded.
//
//   Load(path, {.map_location = "cpu"})                                  all tensors to one device
//   Load(path, {.map_location = {{"cuda:0", "cuda:1"}}})                 by device; other devices do not change
//   Load(path, {.map_location = [&](c10::Device saved) { return ...; }}) by a function
//
// By default every tensor is loaded onto the device from which it was saved.

#ifndef LOCKSTEP_CHECKPOINT_MAP_LOCATION_H_
#define LOCKSTEP_CHECKPOINT_MAP_LOCATION_H_

#include <c10/core/Device.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint {

class MapLocation {
 public:
  using Function = std::function<c10::Device(c10::Device)>;
  using DeviceMap = std::vector<std::pair<std::string, std::string>>;

  MapLocation() = default;
  MapLocation(const char* device) : rule_(std::string(device)) {}
  MapLocation(const std::string& device) : rule_(device) {}
  MapLocation(absl::string_view device) : rule_(std::string(device)) {}
  MapLocation(c10::Device device) : rule_(device.str()) {}
  MapLocation(c10::DeviceType type) : rule_(c10::Device(type).str()) {}
  MapLocation(DeviceMap map) : rule_(std::move(map)) {}
  MapLocation(std::initializer_list<DeviceMap::value_type> map) : rule_(DeviceMap(map)) {}
  template <typename F, std::enable_if_t<std::is_invocable_r_v<c10::Device, F, c10::Device>, int> = 0>
  MapLocation(F function) : rule_(Function(std::move(function))) {}

  // InvalidArgument: a name is not a device. An exception of a function becomes a status by
  // lockstep::StatusFromException.
  absl::StatusOr<c10::Device> Map(c10::Device saved) const;

 private:
  std::variant<std::monostate, std::string, DeviceMap, Function> rule_;
};

// Parses "cpu", "cuda:1", ... InvalidArgument: `name` is not a device.
absl::StatusOr<c10::Device> ParseDevice(absl::string_view name);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MAP_LOCATION_H_
