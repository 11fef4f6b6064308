#include "lockstep/comm/watch/internal/process_handle.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace lockstep::comm::internal {
namespace {

constexpr int kPidfdOpen = 434;  // the same on every architecture

#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;  // of asm-generic/socket.h, which Debian 12's kernel headers do not have yet
#endif

// struct pidfd_info of linux/pidfd.h, which Debian 12's kernel headers do not have yet.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup_id;
  uint32_t ids[11];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64, "the kernel's first version of it");

constexpr uint64_t kExitInfo = uint64_t{1} << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

// The status that the parent got when it reaped the process.
std::optional<int> ReapedStatus(int pidfd) {
  PidfdInfo info = {};
  info.mask = kExitInfo;
  if (pidfd < 0 || ioctl(pidfd, kGetInfo, &info) != 0 || !(info.mask & kExitInfo)) return std::nullopt;
  return info.exit_code;
}

}  // namespace

// Before Linux 6.16 a Unix socket gives a handle on the process at its other end only until that is reaped, and no call
// tells the difference.
bool ProcessHandle::SocketsKeepHandles() {
  static const bool keep = [] {
    utsname system = {};
    int major = 0, minor = 0;
    return uname(&system) == 0 && sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 16));
  }();
  return keep;
}

ProcessHandle::ProcessHandle(RankIdentity identity, const RankIdentity& me, AtFirst at_first)
    : identity_(std::move(identity)), is_visible_(SeeTheSameProcesses(identity_, me)) {
  if (at_first == AtFirst::kOpen) Open();
}

void ProcessHandle::Open() {
  if (!is_visible_) return;
  pidfd_ = UniqueFd(static_cast<int>(syscall(kPidfdOpen, identity_.pid, 0)));
  // The pidfd is open and the same process still runs, so its pid was not reused before.
  if (pidfd_.valid() && !FateOfVisible(identity_).empty()) pidfd_.Close();
}

// Invalid if the socket has none, or one of another process.
UniqueFd ProcessHandle::PidfdOf(int connection) const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool known = getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (!known || peer.pid != identity_.pid) return UniqueFd();
  int pidfd = -1;
  size = sizeof(pidfd);
  return UniqueFd(getsockopt(connection, SOL_SOCKET, kPeerPidfd, &pidfd, &size) == 0 ? pidfd : -1);
}

void ProcessHandle::LeaveTo(int connection) {
  if (!pidfd_.valid() || !SocketsKeepHandles()) return;
  // First, since the process may have no other free descriptor.
  pidfd_.Close();
  // The connection's own must be a handle on the same process, and the kernel must not refuse to give it.
  if (!PidfdOf(connection).valid()) Open();
}

void ProcessHandle::TakeFrom(int connection) {
  if (!pidfd_.valid() && is_visible_ && SocketsKeepHandles()) pidfd_ = PidfdOf(connection);
}

std::string ProcessHandle::Fate() const {
  const std::string fate = is_visible_ ? FateOfVisible(identity_) : "";
  if (fate != DescribeEnd(std::nullopt)) return fate;
  return DescribeEnd(ReapedStatus(pidfd_.get()));
}

}  // namespace lockstep::comm::internal
