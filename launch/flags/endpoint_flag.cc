#include "lockstep/launch/flags/endpoint_flag.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

constexpr int kLastPort = 65535;
constexpr int kExamplePort = 29400;

template <typename... Parts>
absl::Status Expected(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

bool IsDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

std::optional<int> PortOf(absl::string_view text) {
  int port;
  if (!IsDigits(text) || !absl::SimpleAtoi(text, &port) || port > kLastPort) return std::nullopt;
  return port;
}

std::optional<in6_addr> Address6(absl::string_view text) {
  in6_addr address;
  const size_t zone = text.find('%');
  if (zone != absl::string_view::npos && (zone + 1 == text.size() || text.find(':', zone) != absl::string_view::npos)) {
    return std::nullopt;
  }
  if (inet_pton(AF_INET6, std::string(text.substr(0, zone)).c_str(), &address) != 1) return std::nullopt;
  return address;
}

// Only this host knows its interfaces. Without one, a link-local address cannot be reached.
absl::StatusOr<std::string> CheckZone(absl::string_view text, const in6_addr& address) {
  const size_t percent = text.find('%');
  if (percent == absl::string_view::npos) {
    if (!IN6_IS_ADDR_LINKLOCAL(&address)) return std::string(text);
    return Expected("the interface of a link-local address too, as in [", text, "%eth0]:", kExamplePort);
  }
  const std::string zone(text.substr(percent + 1));
  if (IsDigits(zone) || if_nametoindex(zone.c_str()) != 0) return std::string(text);
  return Expected("an interface of this host after the %, but there is no ", Printable(zone));
}

absl::StatusOr<std::string> Host6(absl::string_view text) {
  const std::optional<in6_addr> address = Address6(text);
  if (address) return CheckZone(text, *address);
  return Expected("an IPv6 address in brackets, as in [::1]:", kExamplePort);
}

// A name, or an address of version 4. Nobody has a name of digits and dots.
absl::StatusOr<std::string> NameOrHost4(absl::string_view text, absl::string_view expected) {
  const std::string host(text);
  if (host.empty() || host.find_first_of("[]%:/") != std::string::npos) return Expected(expected);
  in_addr address;
  if (host.find_first_not_of("0123456789.") == std::string::npos && inet_aton(host.c_str(), &address) == 0) {
    return Expected(expected, "; ", host, " is not an address");
  }
  return host;
}

absl::StatusOr<HostAndPort> ReadBracketed(absl::string_view text, int default_port) {
  HostAndPort endpoint;
  endpoint.port = default_port;
  const size_t end = text.find(']');
  LOCKSTEP_ASSIGN_OR_RETURN(endpoint.host, Host6(end == absl::string_view::npos ? "" : text.substr(1, end - 1)));
  const absl::string_view rest = text.substr(end + 1);
  if (rest.empty() && default_port >= 0) return endpoint;
  const std::optional<int> port = rest.empty() || rest[0] != ':' ? std::nullopt : PortOf(rest.substr(1));
  if (!port) return Expected("[address]:port, with a port of at most ", kLastPort);
  endpoint.port = *port;
  return endpoint;
}

// Several colons without brackets. torchrun takes the part after the last one as the port.
absl::StatusOr<HostAndPort> ReadBare6(absl::string_view text, int default_port) {
  const size_t colon = text.rfind(':');
  const absl::string_view head = text.substr(0, colon);
  const std::optional<int> port = PortOf(text.substr(colon + 1));
  const std::optional<in6_addr> whole = Address6(text);
  const bool has_port = port && Address6(head);
  HostAndPort endpoint;
  if (whole && has_port && default_port >= 0) {
    return Expected(WithPort(std::string(text), absl::StrCat(default_port)), ", or ",
                    WithPort(std::string(head), absl::StrCat(*port)), " if ", *port, " is the port");
  }
  if (has_port) {
    LOCKSTEP_ASSIGN_OR_RETURN(endpoint.host, Host6(head));
    endpoint.port = *port;
    return endpoint;
  }
  if (!whole || default_port < 0) {
    return Expected("host:port, and an IPv6 address in brackets, as in [::1]:", kExamplePort);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(endpoint.host, Host6(text));
  endpoint.port = default_port;
  return endpoint;
}

}  // namespace

absl::StatusOr<HostAndPort> ReadEndpoint(absl::string_view text, int default_port) {
  if (text == ":0") text = "localhost:0";
  if (!text.empty() && text[0] == '[') return ReadBracketed(text, default_port);
  const absl::string_view expected = default_port < 0 ? "host:port" : "host or host:port";
  if (text.find('/') != absl::string_view::npos) return Expected(expected);
  const size_t colon = text.find(':');
  if (text.rfind(':') != colon) return ReadBare6(text, default_port);
  HostAndPort endpoint;
  LOCKSTEP_ASSIGN_OR_RETURN(endpoint.host, NameOrHost4(text.substr(0, colon), expected));
  endpoint.port = default_port;
  if (colon != absl::string_view::npos) {
    const absl::string_view number = text.substr(colon + 1);
    const std::optional<int> port = PortOf(number);
    if (!port) return Expected(expected, IsDigits(number) ? absl::StrCat(", with a port of at most ", kLastPort) : "");
    endpoint.port = *port;
  }
  if (endpoint.port < 0) return Expected(expected);
  return endpoint;
}

absl::StatusOr<std::string> ReadHost(absl::string_view text) {
  if (text.size() > 1 && text.front() == '[' && text.back() == ']') return Host6(text.substr(1, text.size() - 2));
  if (Address6(text)) return Host6(text);
  return NameOrHost4(text, "a host without a port");
}

}  // namespace lockstep::launch
