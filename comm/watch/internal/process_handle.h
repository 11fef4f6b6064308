#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_

#include <string>

#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm::internal {

// Keeps a handle on a rank's process, so that FateOf() works even after its parent has reaped it (Linux 6.15 and
// later). Not copyable. Const methods are thread-safe.
class ProcessHandle {
 public:
  // `me` is IdentityOfThisProcess(). Opens a descriptor unless `at_first` is kNone; then Fate() may lack the reason of a
  // death before LeaveTo().
  enum class AtFirst { kOpen, kNone };
  ProcessHandle(RankIdentity identity, const RankIdentity& me, AtFirst at_first = AtFirst::kOpen);
  ~ProcessHandle();
  ProcessHandle(ProcessHandle&& other) noexcept;
  ProcessHandle& operator=(ProcessHandle&&) = delete;

  const RankIdentity& identity() const { return identity_; }

  // As FateOf().
  std::string Fate() const;

  // Saves a descriptor while `connection` is open, if that is a Unix socket to the process: the kernel keeps a handle on
  // the process with the socket (Linux 6.16 and later). Call TakeFrom() before the socket is closed.
  static bool SocketsKeepHandles();
  void LeaveTo(int connection);
  void TakeFrom(int connection);

 private:
  void Open();
  int PidfdOf(int connection) const;
  void Close();

  RankIdentity identity_;
  bool is_visible_;
  int pidfd_ = -1;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_PROCESS_HANDLE_H_
