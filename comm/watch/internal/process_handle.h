#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_

#include <string>

#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm::internal {

// Keeps a handle on a rank's process, so that FateOf() works even after its parent has reaped it (Linux 6.15 and
// later). Const methods are thread-safe.
class ProcessHandle {
 public:
  // With kOpen, the object opens a descriptor at once. With kNone, Fate() may lack the reason of a death before
  // LeaveTo().
  enum class AtFirst { kOpen, kNone };
  // `me` is IdentityOfThisProcess().
  ProcessHandle(RankIdentity identity, const RankIdentity& me, AtFirst at_first = AtFirst::kOpen);

  const RankIdentity& identity() const { return identity_; }

  // As FateOf().
  std::string Fate() const;

  // Returns whether the kernel keeps a handle on the process at the other end with each Unix socket (Linux 6.16 and
  // later).
  static bool SocketsKeepHandles();
  // Saves a descriptor while `connection` is open, if that is such a socket to the process. Call TakeFrom() before the
  // socket is closed.
  void LeaveTo(int connection);
  void TakeFrom(int connection);

 private:
  void Open();
  UniqueFd PidfdOf(int connection) const;

  RankIdentity identity_;
  bool is_visible_;
  UniqueFd pidfd_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_
