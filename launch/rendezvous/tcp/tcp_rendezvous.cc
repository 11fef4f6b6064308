#include "lockstep/tools/launch/tcp/internal/tcp_rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/unique_fd.h"
#include "lockstep/tools/launch/tcp/internal/tcp_guest.h"
#include "lockstep/tools/launch/tcp/internal/tcp_host.h"

namespace lockstep::launch::internal {
namespace {

// Known to everybody, so it only tells launchers from other programs.
constexpr char kNoSecret[] = "lockstep launch: no secret is set";

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// With an empty host: all addresses of this node.
absl::StatusOr<Addresses> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  if (host.empty()) hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const char* name = host.empty() ? nullptr : host.c_str();
  const int error = getaddrinfo(name, absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot find host ", host, ": ", gai_strerror(error)));
  return Addresses(found, freeaddrinfo);
}

// NotFound: no address is one of this node. AlreadyExists: the port is taken.
absl::StatusOr<UniqueFd> ListenAt(const addrinfo* addresses) {
  absl::Status status = absl::NotFoundError("it is not an address of this node");
  for (const addrinfo* address = addresses; address; address = address->ai_next) {
    UniqueFd fd = AboveStdio(UniqueFd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!fd.valid() && IsOutOfDescriptors(errno)) return DescriptorError("listening for the other nodes", errno);
    if (!fd.valid()) continue;
    const int on = 1, off = 0;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->ai_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0) return fd;
    if (errno == EADDRINUSE) return absl::AlreadyExistsError("the port is taken");
    if (errno == EACCES) return absl::PermissionDeniedError(strerror(errno));
  }
  return status;
}

// A socket that listens at the endpoint. Invalid: this agent is a guest. `port_is_taken`: see TcpGuest::Start().
absl::StatusOr<UniqueFd> BecomeHost(const TcpOptions& options, bool* port_is_taken) {
  const std::string endpoint = WithPort(options.host, absl::StrCat(options.port));
  if (options.is_host.has_value() && !*options.is_host) return UniqueFd();
  absl::StatusOr<Addresses> addresses = Resolve(options.host, options.port);
  absl::StatusOr<UniqueFd> listener = addresses.ok() ? ListenAt(addresses->get()) : addresses.status();
  const bool must_be_host = options.is_host.value_or(false);
  if (must_be_host && !listener.ok() && !absl::IsAlreadyExists(listener.status())) {
    // The endpoint may be the name of a service that leads to this node.
    LOCKSTEP_ASSIGN_OR_RETURN(addresses, Resolve("", options.port));
    listener = ListenAt(addresses->get());
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

}  // namespace lockstep::launch::internal
