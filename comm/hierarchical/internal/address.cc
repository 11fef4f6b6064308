#include "lockstep/comm/hierarchical/internal/address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/posix/socket.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

std::string AddressOfInterface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string address;
  for (const ifaddrs* each = all; each && address.empty(); each = each->ifa_next) {
    if (!each->ifa_addr || name != each->ifa_name) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST] = "";
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    getnameinfo(each->ifa_addr, bytes, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
    address = host;
  }
  freeifaddrs(all);
  return address;
}

}  // namespace

absl::StatusOr<std::string> AddressForOtherHosts(const std::string& master) {
  const char* const interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    const std::vector<std::string> names = absl::StrSplit(interfaces, ',');
    std::string address = AddressOfInterface(names[0]);
    if (address.empty()) {
      return absl::NotFoundError(absl::StrCat("GLOO_SOCKET_IFNAME=", interfaces, ": no interface ", names[0],
                                              " with an address of the Internet protocol"));
    }
    return address;
  }
  for (const std::string& host : {master, HostName()}) {
    if (host.empty()) continue;
    std::string address = LocalAddressTowards(host);
    if (!address.empty()) return address;
  }
  return absl::NotFoundError("this host has no address for the other hosts; set GLOO_SOCKET_IFNAME");
}

}  // namespace lockstep::comm::hierarchical::internal
