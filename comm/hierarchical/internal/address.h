#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::comm::hierarchical::internal {

// This host's address for the other hosts: of the first interface in GLOO_SOCKET_IFNAME if that is set, otherwise of
// the route to `master`, otherwise of the host's name, as Gloo chooses. NotFound: there is none.
absl::StatusOr<std::string> AddressForOtherHosts(const std::string& master);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_
