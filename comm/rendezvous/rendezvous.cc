#include "lockstep/comm/rendezvous/rendezvous.h"

#include <fcntl.h>

#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/comm/store/internal/c10d_stores.h"
#include "lockstep/comm/store/internal/listen_socket.h"

namespace lockstep::comm {
namespace {

using internal::Address;

absl::Status NotSet(absl::string_view name, const RankEnvironment& environment) {
  const bool known = environment.launcher != "no launcher" && environment.launcher != "the environment";
  return absl::InvalidArgumentError(absl::StrCat("init_method env:// needs environment variable ", name,
                                                 ", which is not set",
                                                 known ? absl::StrCat(" by ", environment.launcher) : ""));
}

absl::StatusOr<Address> FromEnvironment(const RankEnvironment& environment) {
  if (environment.master_addr.empty()) return NotSet("MASTER_ADDR", environment);
  if (environment.master_port < 0) return NotSet("MASTER_PORT", environment);
  return Address{environment.master_addr, environment.master_port};
}

// "host:port" or "[v6]:port".
absl::StatusOr<Address> ParseAddress(absl::string_view init_method) {
  absl::string_view text = absl::StripPrefix(init_method, "tcp://");
  const size_t colon = text.rfind(':');
  Address address;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &address.port) ||
      address.port < 1 || address.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("init_method \"", init_method, "\": expected tcp://host:port with a port from 1 to 65535"));
  }
  address.host = std::string(absl::StripSuffix(absl::StripPrefix(text.substr(0, colon), "["), "]"));
  return address;
}

// The socket that a launcher bound and this process inherited, or a new one.
absl::StatusOr<UniqueFd> ListenSocket(const Address& address, int inherited) {
  if (inherited < 0) return internal::BindListenSocket(address.host, address.port);
  LOCKSTEP_ASSIGN_OR_RETURN(const int port, internal::BoundPort(inherited));
  if (port != address.port) {
    return absl::InvalidArgumentError(absl::StrCat("environment variable LOCKSTEP_MASTER_LISTEN_FD=", inherited,
                                                   " is bound to port ", port, ", but MASTER_PORT=", address.port));
  }
  fcntl(inherited, F_SETFD, FD_CLOEXEC);
  return UniqueFd(inherited);
}

// Without these LibTorch's server fails with an error that does not name the reason, or drops connections.
absl::Status CheckResources(int world_size) {
  constexpr int kDescriptors = 16;  // its listener, its event loop, and both ends of rank 0's own connection
  constexpr int kThreads = 2;       // the server's, and the one of the call that creates it
  LOCKSTEP_RETURN_IF_ERROR(CheckFreeDescriptors(kDescriptors + world_size));
  return CheckThreadsStart("the store's threads", kThreads);
}

absl::StatusOr<internal::C10dStore> Serve(const Address& address, const RendezvousOptions& options) {
  const absl::Status resources = CheckResources(options.world_size);
  if (!resources.ok()) return Annotate(resources, absl::StrCat("serving the store at ", ToString(address)));
  const bool inherits = options.init_method == "env://";
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd fd, ListenSocket(address, inherits ? options.environment.master_listen_fd : -1));
  return internal::ServeTcpStore(address, std::move(fd), options.timeout);
}

// If rank 0 has not come, all other ranks wait. Rank 1 says so, and so does the first rank of each further node, since
// a node may be the only one that cannot reach the store.
std::function<void(absl::string_view)> SayThatStoreIsAwaited(const Address& address, const RendezvousOptions& options) {
  const RankEnvironment& environment = options.environment;
  const bool first_of_node = environment.node_rank.value_or(0) > 0 && environment.local_rank == 0;
  if (!options.waiting || (options.rank > 1 && !first_of_node)) return nullptr;
  return [waiting = options.waiting, place = absl::StrCat("the store at ", ToString(address))](absl::string_view why) {
    waiting->Tick(
        [&] { return place; },
        absl::StrCat(": ", why, "; has rank 0 started there, and does a firewall let this host reach the port?"));
  };
}

absl::StatusOr<Rendezvous> OpenTcp(const Address& address, const RendezvousOptions& options) {
  Rendezvous rendezvous;
  rendezvous.master_addr = address.host;
  const bool agent = options.init_method == "env://" && options.environment.use_agent_store;
  if (options.rank == 0 && !agent) {
    LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.server, Serve(address, options));
  }
  // Rank 0 has a separate client too. The client counts among the workers that a Python rank 0 waits for, and does not
  // wait itself.
  LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.store,
                            internal::ConnectTcpStore(address, /*count_as_worker=*/true, options.timeout,
                                                      SayThatStoreIsAwaited(address, options), options.interruption,
                                                      options.environment.hosts_are_up));
  if (agent && options.environment.restart_count > 0) {
    rendezvous.store = c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("lockstep/attempt_", options.environment.restart_count), rendezvous.store);
  }
  return rendezvous;
}

absl::StatusOr<Rendezvous> OpenFile(const RendezvousOptions& options) {
  const std::string path(absl::StripPrefix(options.init_method, "file://"));
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("init_method \"", options.init_method, "\": expected file:// and an absolute path"));
  }
  Rendezvous rendezvous;
  LOCKSTEP_ASSIGN_OR_RETURN(rendezvous.store, internal::OpenFileStore(path, options.world_size, options.timeout));
  return rendezvous;
}

}  // namespace

absl::StatusOr<Rendezvous> OpenStore(const RendezvousOptions& options) {
  if (options.init_method == "env://") {
    LOCKSTEP_ASSIGN_OR_RETURN(const Address address, FromEnvironment(options.environment));
    return OpenTcp(address, options);
  }
  if (absl::StartsWith(options.init_method, "tcp://")) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Address address, ParseAddress(options.init_method));
    return OpenTcp(address, options);
  }
  if (absl::StartsWith(options.init_method, "file://")) return OpenFile(options);
  return absl::InvalidArgumentError(
      absl::StrCat("init_method \"", options.init_method, "\": expected env://, tcp://host:port or file:///path"));
}

}  // namespace lockstep::comm
