#include "lockstep/dp/internal/balance.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace lockstep::dp::internal {
namespace {

std::string Imbalance(const std::vector<c10::Device>& devices, const std::vector<DeviceProperties>& properties,
                      const char* what, int64_t DeviceProperties::*amount) {
  const auto [least, most] = std::minmax_element(
      properties.begin(), properties.end(), [amount](const auto& a, const auto& b) { return a.*amount < b.*amount; });
  if (static_cast<double>((*least).*amount) >= 0.75 * static_cast<double>((*most).*amount)) return "";
  const auto name = [&](auto device) { return devices[device - properties.begin()].str(); };
  return absl::StrCat("There is an imbalance between your devices: ", name(least), " has less than 75% of the ", what,
                      " of ", name(most), " (", (*least).*amount, " against ", (*most).*amount,
                      "), and each gets an equal share of a batch. You may want to leave ", name(least),
                      " out of device_ids or CUDA_VISIBLE_DEVICES.");
}

}  // namespace

std::string ImbalanceWarning(const std::vector<c10::Device>& devices, const std::vector<DeviceProperties>& properties) {
  if (properties.empty()) return "";
  const std::string memory = Imbalance(devices, properties, "memory", &DeviceProperties::memory);
  return memory.empty() ? Imbalance(devices, properties, "multiprocessors", &DeviceProperties::multiprocessors)
                        : memory;
}

void WarnIfImbalanced(const std::vector<c10::Device>& devices) {
  std::vector<DeviceProperties> properties;
  for (const c10::Device& device : devices) {
    const std::optional<DeviceProperties> of_device = device.is_cuda() ? PropertiesOf(device) : std::nullopt;
    if (!of_device) return;
    properties.push_back(*of_device);
  }
  const std::string warning = ImbalanceWarning(devices, properties);
  if (!warning.empty()) TORCH_WARN(warning);
}

}  // namespace lockstep::dp::internal
