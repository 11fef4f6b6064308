#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lockstep/comm/gloo/internal/gloo_backend.h"
#include "lockstep/comm/internal/socket.h"

namespace lockstep::comm::internal {
namespace {

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

bool ShareAHost(const std::vector<RankIdentity>& ranks) {
  return !ranks.empty() &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankIdentity& rank) { return OnOneHost(ranks[0], rank); });
}

}  // namespace

decltype(c10d::ProcessGroupGloo::Options::devices) ChooseDevices(const BackendContext& context) {
  using c10d::ProcessGroupGloo;
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    decltype(ProcessGroupGloo::Options::devices) devices;
    for (const absl::string_view name : absl::StrSplit(interfaces, ',')) {
      devices.push_back(ProcessGroupGloo::createDeviceForInterface(std::string(name)));
    }
    return devices;
  }
  const std::string& master_addr = context.master_addr;
  if (IsLoopback(master_addr)) return {ProcessGroupGloo::createDeviceForHostname(master_addr)};
  if (ShareAHost(context.ranks)) return {ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  // The address is empty if the ranks met in a file, and useless if only some hosts know the name.
  const std::string local = master_addr.empty() ? "" : LocalAddressTowards(master_addr);
  if (local.empty()) return {ProcessGroupGloo::createDefaultDevice()};
  return {ProcessGroupGloo::createDeviceForHostname(local)};
}

}  // namespace lockstep::comm::internal
