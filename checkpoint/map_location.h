// Where a checkpoint's tensors go when it is loaded.
//
//   Load(path, {.map_location = "cpu"})                                  every tensor to one device
//   Load(path, {.map_location = {{"cuda:0", "cuda:1"}}})                 device by device; others stay where they were
//   Load(path, {.map_location = [&](c10::Device saved) { return ...; }}) as a function says
//
// Without one every tensor goes to the device that it was saved from.

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

  // InvalidArgument where a name is no device; what a function throws, by lockstep::StatusFromException.
  absl::StatusOr<c10::Device> Map(c10::Device saved) const;

 private:
  std::variant<std::monostate, std::string, DeviceMap, Function> rule_;
};

// "cpu", "cuda:1", ...; InvalidArgument for what names no device.
absl::StatusOr<c10::Device> ParseDevice(absl::string_view name);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MAP_LOCATION_H_
