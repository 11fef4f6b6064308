#ifndef LOCKSTEP_COMM_INTERNAL_LOCAL_ADDRESS_H_
#define LOCKSTEP_COMM_INTERNAL_LOCAL_ADDRESS_H_

#include <string>

namespace lockstep::comm::internal {

// The address from which this host sends to `host`, a name or an address; empty if `host` is unknown or out of reach.
std::string LocalAddressTowards(const std::string& host);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_LOCAL_ADDRESS_H_
