#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::comm::hierarchical::internal {

// Returns the address by which other hosts reach this one, chosen as Gloo does. If GLOO_SOCKET_IFNAME is set, it is an
// address of the first interface named there. Otherwise it is the address from which this host reaches `master`, or,
// if there is none, the address of the host's name. NotFound: this host has no such address.
absl::StatusOr<std::string> AddressForOtherHosts(const std::string& master);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_ADDRESS_H_
