#include "lockstep/dp/device_id.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::dp {
namespace {

int DeviceCount(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

}  // namespace

absl::StatusOr<c10::Device> DeviceId::Resolve(absl::string_view name) const {
  c10::Device device = device_;
  if (index_ != kDevice && index_ < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected the number of a GPU, or -1 for the CPU, found ", index_));
  }
  if (index_ >= 0) device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index_));
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  const int count = DeviceCount(device.type());
  if (count == 0 || device.index() >= count) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected a visible device, found ", device.str(),
                                                   " where there are ", count, " of this kind"));
  }
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

absl::StatusOr<std::vector<c10::Device>> ResolveDevices(const std::vector<DeviceId>& ids) {
  std::vector<c10::Device> devices;
  if (ids.empty()) {
    for (int i = 0; i < DeviceCount(c10::kCUDA); ++i)
      devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, ids[i].Resolve(absl::StrCat("device_ids[", i, "]")));
    if (!devices.empty() && device.type() != devices[0].type()) {
      return absl::InvalidArgumentError(absl::StrCat("device_ids[", i, "]: expected a device of the type of ",
                                                     devices[0].str(), " (device_ids[0]), found ", device.str()));
    }
    devices.push_back(device);
  }
  return devices;
}

absl::StatusOr<c10::Device> ResolveOutputDevice(const std::optional<DeviceId>& id,
                                                const std::vector<c10::Device>& devices) {
  if (id) return id->Resolve("output_device");
  return devices.empty() ? c10::Device(c10::kCPU) : devices[0];
}

}  // namespace lockstep::dp
