#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/posix/socket.h"
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

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
Device DeviceForInterface(const std::string& name, bool lazy) {
  return ProcessGroupGloo::createDeviceForInterface(name, lazy);
}
Device DeviceForHostname(const std::string& name, bool lazy) {
  return ProcessGroupGloo::createDeviceForHostname(name, lazy);
}
Device DefaultDevice(bool lazy) { return ProcessGroupGloo::createDefaultDevice(lazy); }
#else
Device DeviceForInterface(const std::string& name, bool /*lazy*/) {
  return ProcessGroupGloo::createDeviceForInterface(name);
}
Device DeviceForHostname(const std::string& name, bool /*lazy*/) {
  return ProcessGroupGloo::createDeviceForHostname(name);
}
Device DefaultDevice(bool /*lazy*/) { return ProcessGroupGloo::createDefaultDevice(); }
#endif

}  // namespace

bool ConnectsLazily(const BackendContext& context) {
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
  return context.connect_lazily || c10d::getDefaultGlooLazyInit();
#else
  (void)context;
  return false;
#endif
}

decltype(c10d::ProcessGroupGloo::Options::devices) ChooseDevices(const BackendContext& context) {
  const bool lazy = ConnectsLazily(context);
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    decltype(ProcessGroupGloo::Options::devices) devices;
    for (const absl::string_view name : absl::StrSplit(interfaces, ',')) {
      devices.push_back(DeviceForInterface(std::string(name), lazy));
    }
    return devices;
  }
  const std::string& master_addr = context.master_addr;
  if (IsLoopback(master_addr)) return {DeviceForHostname(master_addr, lazy)};
  if (ShareAHost(context.ranks)) return {DeviceForHostname("127.0.0.1", lazy)};
  // The address is empty if the ranks met in a file, and useless if only some hosts know the name.
  const std::string local = master_addr.empty() ? "" : LocalAddressTowards(master_addr);
  if (local.empty()) return {DefaultDevice(lazy)};
  return {DeviceForHostname(local, lazy)};
}

}  // namespace lockstep::comm::internal
