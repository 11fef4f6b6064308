// How users write the address of an etcd member.

#ifndef LOCKSTEP_TOOLS_LAUNCH_ETCD_ENDPOINT_H_
#define LOCKSTEP_TOOLS_LAUNCH_ETCD_ENDPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/tools/launch/etcd/curl_library.h"

namespace lockstep::launch::etcd {

// "http://host:port" of "host:port", or https if `is_secure`; of "http://host", with etcd's port 2379; and so on.
// InvalidArgument: this is not a URL, or it has more than a scheme, a host and a port.
absl::StatusOr<std::string> EndpointUrl(const CurlLibrary& curl, absl::string_view endpoint, bool is_secure);

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_TOOLS_LAUNCH_ETCD_ENDPOINT_H_
