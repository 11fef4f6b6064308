#include "lockstep/launch/node/master_socket.h"

#include <errno.h>

#include <utility>

#include "absl/status/status.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

// A store's server expects that, Python's too.
constexpr ListenOptions kBlocks = {.blocks = true};

SocketAddress AnyIpv4() { return Resolve("0.0.0.0", 0)->front(); }

absl::StatusOr<MasterSocket> WithItsPort(UniqueFd fd) {
  if (!fd.valid()) {
    return DescriptorError("launch: no port for rank 0's store", errno, absl::StatusCode::kResourceExhausted);
  }
  const int port = BoundAddress(fd.get()).port();
  return MasterSocket{std::move(fd), port};
}

}  // namespace

absl::StatusOr<MasterSocket> ListenOnLoopback() {
  return WithItsPort(ListenAt(Resolve("127.0.0.1", 0)->front(), kBlocks));
}

absl::StatusOr<MasterSocket> ListenOnAllAddresses() { return WithItsPort(ListenAt(AnyIpv4(), kBlocks)); }

absl::StatusOr<MasterSocket> HoldPort() { return WithItsPort(Bind(AnyIpv4(), {.blocks = true, .reuses_port = true})); }

absl::StatusOr<int> FreePort() {
  LOCKSTEP_ASSIGN_OR_RETURN(const MasterSocket probe, WithItsPort(Bind(AnyIpv4())));
  return probe.port;
}

}  // namespace lockstep::launch
