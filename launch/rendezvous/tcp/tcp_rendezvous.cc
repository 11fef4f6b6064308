#include "lockstep/launch/rendezvous/tcp/tcp_rendezvous.h"

#include <errno.h>
#include <string.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/rendezvous/tcp/tcp_guest.h"
#include "lockstep/launch/rendezvous/tcp/tcp_host.h"

namespace lockstep::launch {
namespace {

// Known to everybody, so it only tells launchers from other programs.
constexpr char kNoSecret[] = "lockstep launch: no secret is set";

// NotFound: nobody knows the host, or no address of it is one of this node. AlreadyExists: the port is taken.
absl::StatusOr<UniqueFd> ListenForNodes(const std::string& host, int port) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(host, port));
  for (const SocketAddress& address : addresses) {
    UniqueFd fd = ListenAt(address, {.reuses_port = true});
    if (fd.valid()) return fd;
    if (IsOutOfDescriptors(errno)) return DescriptorError("listening for the other nodes", errno);
    if (errno == EADDRINUSE) return absl::AlreadyExistsError("the port is taken");
    if (errno == EACCES) return absl::PermissionDeniedError(strerror(errno));
  }
  return absl::NotFoundError("it is not an address of this node");
}

// A socket that listens at the endpoint. Invalid: this agent is a guest. `port_is_taken`: see TcpGuest::Start().
absl::StatusOr<UniqueFd> BecomeHost(const TcpOptions& options, bool* port_is_taken) {
  const std::string endpoint = WithPort(options.host, absl::StrCat(options.port));
  if (options.is_host.has_value() && !*options.is_host) return UniqueFd();
  absl::StatusOr<UniqueFd> listener = ListenForNodes(options.host, options.port);
  const bool must_be_host = options.is_host.value_or(false);
  if (must_be_host && !listener.ok() && !absl::IsAlreadyExists(listener.status())) {
    // The endpoint may be the name of a service that leads to this node.
    listener = ListenForNodes("", options.port);
  }
  if (listener.ok()) return listener;
  *port_is_taken = absl::IsAlreadyExists(listener.status());
  // Another agent of this node may be the host. If it is another program, the guest will say so.
  const bool may_be_guest = absl::IsNotFound(listener.status()) || absl::IsAlreadyExists(listener.status()) ||
                            absl::IsUnavailable(listener.status());
  if (!must_be_host && may_be_guest) return UniqueFd();
  return absl::FailedPreconditionError(absl::StrCat("cannot listen at ", endpoint, ": ", listener.status().message()));
}

}  // namespace

absl::StatusOr<TcpJoined> JoinTcp(const TcpOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const crypto::JobSecret public_secret, crypto::JobSecret::FromText(kNoSecret));
  const crypto::JobSecret secret = options.secret.value_or(public_secret);
  bool port_is_taken = false;
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd listener, BecomeHost(options, &port_is_taken));
  TcpJoined joined;
  joined.is_host = listener.valid();
  if (joined.is_host) {
    LOCKSTEP_ASSIGN_OR_RETURN(joined.rendezvous, TcpHost::Start(options, secret, std::move(listener)));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(joined.rendezvous, TcpGuest::Start(options, secret, port_is_taken));
  }
  return joined;
}

}  // namespace lockstep::launch
