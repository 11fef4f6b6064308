// Devices in the form of PyTorch's device_ids.

#ifndef LOCKSTEP_DP_DEVICE_ID_H_
#define LOCKSTEP_DP_DEVICE_ID_H_

#include <c10/core/Device.h>

#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::dp {

// A GPU by its number, the CPU as -1, or any c10::Device: DeviceId(0), DeviceId(-1), DeviceId(torch::kCPU).
class DeviceId {
 public:
  DeviceId(int index) : index_(index), device_(c10::kCPU) {}          // NOLINT(google-explicit-constructor)
  DeviceId(c10::Device device) : index_(kDevice), device_(device) {}  // NOLINT(google-explicit-constructor)
  DeviceId(c10::DeviceType type) : DeviceId(c10::Device(type)) {}     // NOLINT(google-explicit-constructor)

  // Returns the device; a GPU has its number ("cuda" is the current one). InvalidArgument: this machine does not have
  // the device. `name` identifies the value in the message.
  absl::StatusOr<c10::Device> Resolve(absl::string_view name) const;

 private:
  static constexpr int kDevice = std::numeric_limits<int>::min();
  int index_;  // kDevice: use device_
  c10::Device device_;
};

// Resolves all of `ids`. If `ids` is empty, returns every visible GPU, or nothing if there is none. InvalidArgument
// also: devices have different types.
absl::StatusOr<std::vector<c10::Device>> ResolveDevices(const std::vector<DeviceId>& ids);

// Resolves `id`. Default: the first of `devices`, or the CPU.
absl::StatusOr<c10::Device> ResolveOutputDevice(const std::optional<DeviceId>& id,
                                                const std::vector<c10::Device>& devices);

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_DEVICE_ID_H_
