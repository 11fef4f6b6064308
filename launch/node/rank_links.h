// The launcher's ends of the control sockets of a node's ranks (agent_link), and what the ranks are told, as messages: on
// one node Membership's decisions, and on one of several what the job's leader has decided.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_

#include <poll.h>
#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/tools/launch/agent_link/internal/link_message.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/internal/master_socket.h"
#include "lockstep/tools/launch/internal/membership.h"
#include "lockstep/tools/launch/internal/node_ranks.h"
#include "lockstep/tools/launch/internal/stall_watch.h"
#include "lockstep/tools/launch/internal/unique_fd.h"
#include "lockstep/tools/launch/status/internal/job_watcher.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

class Regrouper {
 public:
  enum class Nodes {
    kOne,     // the launcher decides
    kStatic,  // nobody decides: each process gets one generation, with the ranks of `place`
    kAgents,  // the job's leader decides: see Obey()
  };

  Regrouper(const Generation& place, const LaunchOptions& options, Nodes nodes);

  // A new control socket for the next process of a slot (a local rank). Returns the process's end. ResourceExhausted: no
  // descriptor is free.
  absl::StatusOr<UniqueFd> Open(int slot);

  // Where rank 0 listens, with kStatic.
  void SetMaster(const std::string& address, int port);

  // Appends to `fds` what the caller must poll: an entry for each slot.
  void AppendTo(std::vector<pollfd>* fds) const;
  // Reads what has come, given the first of these entries. Does not block.
  void Serve(const pollfd* fds);

  // Whether the process of a slot, which has ended, was a rank of a generation and has not said that its work was done.
  bool EndedEarly(int slot);
  // Whether it has said so. Call EndedEarly() before.
  bool has_finished(int slot) const { return has_finished_[slot]; }

  // The process of a slot has ended; the failure's status is OK if it succeeded. Whether the other ranks go on.
  bool OnEnd(int slot, const NodeFailure& failure);

  // With kAgents: what the leader says. Tells the ranks.
  void Obey(NodeRanks ranks);
  // What to tell the leader: of the processes, and the port at which rank 0 could listen. Whether it has changed.
  bool TakeChange() { return slots_.TakeChange(); }
  const NodeSlots& slots() const { return slots_; }
  int port() const { return next_master_.port; }

  // Decides what is due, and tells the ranks. Call it after the above, and at next_look().
  void Update();
  int64_t next_look() const;

  // The slot of a process that must be ended, since the others have waited for it for LaunchOptions::stall_timeout.
  std::optional<int> TakeStalled() { return std::exchange(stalled_, std::nullopt); }  // MonotonicNanos(), or kNever

  // The decisions since the last call. kStart, kKill and kGiveUp are the caller's to carry out; kForm, kAfterStep and
  // kNow have been sent.
  std::vector<Membership::Decision> Take() { return std::exchange(decisions_, {}); }

  // Whether the processes stay when one of them is killed, and when one exits: a generation has formed.
  bool kept() const { return nodes_ == Nodes::kAgents ? slots_.kept() : membership_.kept(); }
  // Whether a process has asked for a generation, or said that it will.
  bool asked() const { return asked_; }
  bool may_be_kept() const { return nodes_ != Nodes::kStatic; }
  bool formed() const { return nodes_ == Nodes::kAgents ? slots_.ranks().formed : membership_.formed(); }
  // Whether processes have yet to end: none runs, but one is to be started, or other nodes go on.
  bool goes_on() const;
  bool finished() const { return membership_.finished(); }
  // Whether the ranks have done all their work, so that a failure of one changes nothing for the others. With kAgents
  // the leader knows.
  bool complete() const { return nodes_ == Nodes::kStatic ? all_done_ : membership_.complete(); }
  int64_t generation() const;
  int world_size() const;
  int rank(int slot) const;       // in that generation; -1: none
  bool IsMember(int slot) const;  // of that generation, and has not left it
  // The processes that were started again, of the job and on this node.
  int restarts() const { return nodes_ == Nodes::kAgents ? slots_.ranks().restarts : membership_.restarts(); }
  int restarts_here() const { return nodes_ == Nodes::kAgents ? restarts_here_ : membership_.restarts(); }
  // How the last process failed that was to come; "" if none has, or with kAgents.
  const std::string& failed_start() const { return membership_.memory().failed_start; }
  // What the last message adds to the failure of a rank.
  const std::string& ending() const { return membership_.ending(); }

  // Why the ranks cannot go on, although none of them has failed just now.
  const absl::Status& status() const { return status_; }

 private:
  void Receive(int slot);
  void OnStays();
  void UpdateStalls();
  void OnFinished(int slot, bool all);
  void OnReady(int slot, const RankMessage& message);
  void OnStaticReady(int slot, int64_t left);
  void Send(int slot, const LauncherMessage& message, int passed = -1);
  void SendGeneration(const Membership::Decision& decision);
  void SendOrder(const Membership::Decision& decision);
  // With kAgents.
  void Carry(const NodeSlots::Action& action);
  void SendRanks(int slot);
  void NoteRanks();
  void HoldNextMaster();
  void Decide(Membership::Decision::Kind kind, int slot, const std::string& reason);

  const Generation place_;
  const Nodes nodes_;
  JobWatcher& watcher_;
  std::string master_addr_;
  int master_port_ = 0;
  std::vector<UniqueFd> links_;     // by slot; invalid: closed
  std::vector<bool> owes_finish_;   // by slot: its process has got a generation, and has not said that its work is done
  std::vector<bool> has_finished_;  // by slot: it has said so
  StallWatch stall_watch_;
  const std::function<void(const std::string&)> on_notice_;
  std::optional<int> stalled_;
  bool all_done_ = false;  // with kStatic: one has said so for all
  Membership membership_;
  NodeSlots slots_;
  MasterSocket next_master_;  // for rank 0 of the next generation, if that is a process of this node
  int64_t told_ = 0;          // the last generation that processes were told
  int restarts_here_ = 0;
  bool asked_ = false;
  std::vector<Membership::Decision> decisions_;
  absl::Status status_;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_REGROUPER_H_
