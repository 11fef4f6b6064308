#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/socket.h"
#include "lockstep/comm/gloo/internal/gloo_backend.h"

namespace lockstep::comm::internal {
namespace {

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

bool ShareAHost(const std::vector<RankIdentity>& ranks) {
  return !ranks.empty() &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankIdentity& rank) { return OnOneHost(ranks[0], rank); });
}

using c10d::ProcessGroupGloo;
using Device = decltype(ProcessGroupGloo::Options::devices)::value_type;

// With the environment variable TORCH_GLOO_LAZY_INIT two ranks connect when they first exchange something, as in Python.
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
Device DeviceForInterface(const std::string& name) {
  return ProcessGroupGloo::createDeviceForInterface(name, c10d::getDefaultGlooLazyInit());
}
Device DeviceForHostname(const std::string& name) {
  return ProcessGroupGloo::createDeviceForHostname(name, c10d::getDefaultGlooLazyInit());
}
Device DefaultDevice() { return ProcessGroupGloo::createDefaultDevice(c10d::getDefaultGlooLazyInit()); }
#else
Device DeviceForInterface(const std::string& name) { return ProcessGroupGloo::createDeviceForInterface(name); }
Device DeviceForHostname(const std::string& name) { return ProcessGroupGloo::createDeviceForHostname(name); }
Device DefaultDevice() { return ProcessGroupGloo::createDefaultDevice(); }
#endif

}  // namespace

decltype(c10d::ProcessGroupGloo::Options::devices) ChooseDevices(const BackendContext& context) {
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    decltype(ProcessGroupGloo::Options::devices) devices;
    for (const absl::string_view name : absl::StrSplit(interfaces, ',')) {
      devices.push_back(DeviceForInterface(std::string(name)));
    }
    return devices;
  }
  const std::string& master_addr = context.master_addr;
  if (IsLoopback(master_addr)) return {DeviceForHostname(master_addr)};
  if (ShareAHost(context.ranks)) return {DeviceForHostname("127.0.0.1")};
  // The address is empty if the ranks met in a file, and useless if only some hosts know the name.
  const std::string local = master_addr.empty() ? "" : LocalAddressTowards(master_addr);
  if (local.empty()) return {DefaultDevice()};
  return {DeviceForHostname(local)};
}

}  // namespace lockstep::comm::internal
