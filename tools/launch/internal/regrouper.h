// The launcher's ends of the control sockets of a node's ranks (agent_link), and what the ranks are told: Membership's
// decisions, as messages.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_

#include <poll.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/tools/launch/agent_link/internal/link_message.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/internal/membership.h"
#include "lockstep/tools/launch/internal/unique_fd.h"
#include "lockstep/tools/launch/status/internal/job_watcher.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

class Regrouper {
 public:
  // `alone`: the node is the only one of the job. Only then processes are kept when one fails. Otherwise each process
  // gets one generation, with the ranks of `place`.
  Regrouper(const Generation& place, const LaunchOptions& options, bool alone);

  // A new control socket for the next process of a slot (a local rank). Returns the process's end. ResourceExhausted: no
  // descriptor is free.
  absl::StatusOr<UniqueFd> Open(int slot);

  // Where rank 0 listens in the only generation of a node that is not alone.
  void SetMaster(const std::string& address, int port);

  // Appends to `fds` what the caller must poll: an entry for each slot.
  void AppendTo(std::vector<pollfd>* fds) const;
  // Reads what has come, given the first of these entries, and decides. Does not block.
  void Serve(const pollfd* fds);

  // The process of a slot has ended. If it failed, `cause` is a sentence about that. Whether the other ranks go on.
  bool OnEnd(int slot, bool failed, const std::string& cause);

  // Decides what is due, and tells the ranks. Call it at next_look() too.
  void Update();
  int64_t next_look() const;  // MonotonicNanos(), or kNever

  // The decisions since the last call. kStart, kKill and kGiveUp are the caller's to carry out; kForm, kAfterStep and
  // kNow have been sent.
  std::vector<Membership::Decision> Take() { return std::exchange(decisions_, {}); }

  const Membership& membership() const { return membership_; }

  // Why the ranks cannot go on, although none of them has failed just now.
  const absl::Status& status() const { return status_; }

 private:
  void Receive(int slot);
  void OnReady(int slot, const RankMessage& message);
  void Send(int slot, const LauncherMessage& message, int passed = -1);
  void SendGeneration(const Membership::Decision& decision);
  void SendOrder(const Membership::Decision& decision);

  const Generation place_;
  const bool alone_;
  JobWatcher& watcher_;
  std::string master_addr_;
  int master_port_ = 0;
  std::vector<UniqueFd> links_;  // by slot; invalid: closed
  Membership membership_;
  std::vector<Membership::Decision> decisions_;
  absl::Status status_;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_
