// The launcher's ends of the control sockets of a node's ranks (launch/link), and what the job's leader has decided
// about the ranks, as messages.

#ifndef LOCKSTEP_LAUNCH_NODE_RANK_LINKS_H_
#define LOCKSTEP_LAUNCH_NODE_RANK_LINKS_H_

#include <poll.h>
#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/job/node_slots.h"
#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/job/rank_plan.h"
#include "lockstep/launch/job/stall_watch.h"
#include "lockstep/launch/link/link_message.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/status/job_watcher.h"

namespace lockstep::launch {

class RankLinks {
 public:
  enum class Nodes {
    kOne,     // the job has this node alone, so its ranks meet at 127.0.0.1
    kStatic,  // nobody decides: each process gets one generation, with the ranks of `place`
    kAgents,  // the job may have others
  };

  RankLinks(const NodeStart& place, const LaunchOptions& options, Nodes nodes);

  // A new control socket for the next process of a slot (a local rank). Returns the process's end. ResourceExhausted:
  // no descriptor is free.
  absl::StatusOr<UniqueFd> Open(int slot);

  // Where rank 0 listens, with kStatic.
  void SetMaster(const std::string& address, int port);

  // Appends to `fds` what the caller must poll: an entry for each slot.
  void AppendTo(std::vector<pollfd>* fds) const;
  // Reads what has come, given the first of these entries. Does not block.
  void Serve(const pollfd* fds);

  // Reads what every process has sent, though the process of a slot has ended. Its last words may be among it, and what
  // others have said before.
  void ReadAll();
  // After ReadAll(): returns whether the process of a slot is a rank of a generation, and has not said that its work is
  // done; and whether it has said so.
  bool owes_finish(int slot) const { return links_[slot].owes_finish; }
  bool has_finished(int slot) const { return links_[slot].has_finished; }

  // The process of a slot has ended; the failure's status is OK if it succeeded. Whether the other ranks go on.
  bool OnEnd(int slot, Failure failure);

  // Tells the ranks the leader's decision.
  void Apply(NodeRanks ranks);
  // TakeChange() returns whether the text for the leader has changed since the last call. The text has the processes,
  // and the port at which rank 0 could listen.
  bool TakeChange() { return slots_.TakeChange(); }
  const NodeSlots& slots() const { return slots_; }
  int port() const { return next_master_.port; }

  // Looks who keeps the others waiting. Call it at next_look(): MonotonicNanos(), or kNever.
  void UpdateStalls();
  int64_t next_look() const { return stall_watch_.next_look(); }

  // The slot of a process that must be ended, since the others have waited for it for LaunchOptions::stall_timeout.
  std::optional<int> TakeStalled() { return std::exchange(stalled_, std::nullopt); }

  // The actions for this node's processes since the last call. kGeneration and
  // kOrder have been sent, and are there for people. kStart, kKill and kGiveUp are the caller's to do.
  std::vector<NodeSlots::Action> Take() { return std::exchange(actions_, {}); }

  // Returns whether the processes stay when one of them is killed.
  bool stays() const { return slots_.stays(); }
  bool may_stay() const { return nodes_ != Nodes::kStatic; }
  // Returns whether a process has asked for a generation, or said that it will.
  bool asked() const { return asked_; }
  // Returns whether the ranks have done all their work, so that a failure of one changes nothing for the others.
  bool complete() const { return nodes_ == Nodes::kStatic ? all_done_ : plan().complete; }
  // Returns the leader's decision, as far as this node knows.
  const RankPlan& plan() const { return slots_.plan(); }
  // The restarts of processes of this attempt on this node.
  int restarts_here() const { return restarts_here_; }

  // Why the ranks cannot go on, although none of them has failed just now.
  const absl::Status& status() const { return status_; }

 private:
  void Receive(int slot);
  void OnStays();
  void OnFinished(int slot, bool all);
  void OnReady(int slot, const RankMessage& message);
  void OnStaticReady(int slot, int64_t left);
  void Send(int slot, const LauncherMessage& message, int passed = -1);
  void Do(const NodeSlots::Action& action);
  void SendGeneration(int slot);
  void SendOrder(int slot);
  void RecordGeneration();
  void HoldNextMaster();

  const NodeStart place_;
  const Nodes nodes_;
  JobWatcher& watcher_;
  std::string master_addr_;
  int master_port_ = 0;
  // The control socket of the process of a slot.
  struct Link {
    UniqueFd fd;                         // invalid: closed
    bool owes_finish = false;            // it has got a generation, and has not said that its work is done
    bool has_finished = false;           // it has said so
    std::optional<StepFailure> failure;  // with which it said that it would exit
  };
  std::vector<Link> links_;  // by slot
  StallWatch stall_watch_;
  const std::function<void(const std::string&)> on_notice_;
  std::optional<int> stalled_;
  bool all_done_ = false;  // with kStatic: one has said so for all
  NodeSlots slots_;
  MasterSocket next_master_;  // for rank 0 of the next generation, if that is a process of this node
  int64_t told_ = 0;          // the last generation that processes were told
  int restarts_here_ = 0;
  bool asked_ = false;
  std::vector<NodeSlots::Action> actions_;
  absl::Status status_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_RANK_LINKS_H_
