// The endpoint of a rendezvous, as users write it.

#ifndef LOCKSTEP_LAUNCH_FLAGS_ENDPOINT_FLAG_H_
#define LOCKSTEP_LAUNCH_FLAGS_ENDPOINT_FLAG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/launch/flags/rendezvous_options.h"

namespace lockstep::launch {

// "host", "host:port", "10.0.0.1", "::1", "::1:29400", "[::1]", "[::1]:29400", "[fe80::1%eth0]:29400"; ":0" is
// localhost:0, as to torchrun. Without a port it gets `default_port`; if that is negative, a port is needed. Nothing is
// looked up but the interface after a %.
//
// InvalidArgument, whose message is what is expected instead: for anything else, and for bare IPv6 addresses whose last
// group may be a port.
absl::StatusOr<HostAndPort> ReadEndpoint(absl::string_view text, int default_port);

// Reads an endpoint without a port. Brackets around an IPv6 address are not part of the result.
absl::StatusOr<std::string> ReadHost(absl::string_view text);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_ENDPOINT_FLAG_H_
