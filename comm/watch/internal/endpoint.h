#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_ENDPOINT_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_ENDPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::internal {

// Where the hub listens, and what proves that it is the hub and that a connection is a rank's.
struct Endpoint {
  std::string host;   // empty: an abstract Unix socket
  std::string name;   // the abstract socket's name, or the port
  std::string token;  // what all ranks know: 128 random bits, in hexadecimal
};

std::string EncodeEndpoint(const Endpoint& endpoint);
// The hub publishes this instead of its endpoint if it cannot listen.
std::string EncodeNoEndpoint(absl::string_view reason);
// Aborted with the reason if the hub gave one.
absl::StatusOr<Endpoint> DecodeEndpoint(absl::string_view text);

// 128 bits from the kernel, in hexadecimal.
std::string RandomToken();

// Sockets are non-blocking and close on exec.

// Listens on an abstract Unix socket of a random name.
absl::StatusOr<UniqueFd> ListenOnThisHost(Endpoint& endpoint);

// Listens at any free port on the interface of `host`, or on all interfaces if this machine does not have that address.
absl::StatusOr<UniqueFd> ListenOnNetwork(const std::string& host, Endpoint& endpoint);

// Unavailable: nothing listens there. DeadlineExceeded. NotFound: the host is unknown. ResourceExhausted: the process
// is out of descriptors. `whom` is for the message: "cannot connect to rank 0 (...) at 10.0.0.1:4711: ...".
absl::StatusOr<UniqueFd> Connect(const std::string& whom, const Endpoint& endpoint, absl::Time deadline);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_ENDPOINT_H_
