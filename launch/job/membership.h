// Decides for a job of one or several nodes which processes are the ranks that train together, while processes fail,
// start again and come, and nodes are lost, leave and come. For programs whose ranks stay when another one fails
// (launch/link). Part of the Coordinator, and as pure.
//
//   Membership membership(limits);
//   membership.Start(job, {}, now);
//   if (membership.Update(agents, needs, now)) Publish(membership.plan());
//   // call Update() again when an agent's state has changed, and at membership.next_look()
//
// Update() compares what the agents say of their processes with what the plan has of them. So a post that comes late,
// or twice, or replaces one that was never seen changes nothing else.
//
// If there are more slots than ranks, or if processes ask for fewer ranks, ready processes that are not needed are
// spares: the next generation has them in the places of members that failed.
//
// One life of a job: kForming until as many processes are ready as there are ranks, then kRunning. While it forms, and
// once a process has said that it stays, one that is killed is started again; one that exits ends the job, since it
// would do so on each start. A failure of a member makes it kRegrouping: every member that is left must leave the
// generation, and when all are ready, the next one forms with them and with new processes that are ready. A new process
// that gets ready while a generation runs makes it regroup after a step, and so does a node that is to leave.
//
// A member that has done its work may take long to end, and is not waited for. When all members have done theirs, the
// job is complete: nothing starts any more, whatever becomes of the processes.

#ifndef LOCKSTEP_LAUNCH_JOB_MEMBERSHIP_H_
#define LOCKSTEP_LAUNCH_JOB_MEMBERSHIP_H_

#include <stdint.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/cut_hosts.h"
#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/process_restarts.h"
#include "lockstep/launch/job/rank_plan.h"

namespace lockstep::launch {

class Membership {
 public:
  struct Limits {
    ProcessRestarts::Limits restarts;
    absl::Duration wait_for_ranks = absl::Minutes(10);  // how long fewer than the least number of ranks wait for others
  };

  // How many nodes a generation needs.
  struct NeededNodes {
    int least = 1;   // with processes that are ready, be it beyond the most ranks
    int most = 1;    // others may come while there are fewer
    int spares = 0;  // nodes that wait to come
  };

  explicit Membership(const Limits& limits) : limits_(limits), restarts_(limits.restarts) {}

  // The members of `job` start their processes at `now`, which never decreases, or have done so while another agent
  // led: then it goes on from job.ranks. `made`: when the first restarts of the job were made; the others count as if
  // they were made now.
  void Start(const JobState& job, const std::vector<absl::Time>& made, absl::Time now);

  // The node of a member comes, is lost, or is to leave between two steps. Finished work of its processes stays
  // finished.
  void Add(const Member& member, absl::Time now);
  void Lose(const Member& member, const std::string& cause, absl::Time now);
  void Leave(const Member& member);
  // Returns whether none of the member's processes takes part any more.
  bool IsGone(const Member& member) const { return plan_.nodes[plan_.NodeOf(member.entry)].gone; }

  // Takes note of the ranks that have failed by themselves, which counts if it was after all work. Call it before nodes
  // leave, since one may say in the same state that a rank has failed and that it leaves.
  void RecordLateFailures(const Agents& agents);
  // Takes note of what the agents say of the processes. Whether plan() has changed in what others must know.
  bool Update(const Agents& agents, const NeededNodes& needed, absl::Time now);
  // When to call it at the latest.
  absl::Time next_look() const { return std::min(next_look_, cuts_.next_look()); }

  const RankPlan& plan() const { return plan_; }
  // Returns whether generations leave out this agent's host, since it and others do not reach each other.
  bool IsLeftOut(const std::string& agent) const { return cuts_.IsLeftOut(agent); }
  // Returns whether all members have ended with success, and so have the processes that were started again for a member
  // that failed when the others were about to finish; or whether the job is complete and all members have ended. Other
  // processes are then not needed. Before a generation has formed: whether all processes have ended with success.
  bool finished() const;
  // How a rank failed by itself after all had done their work.
  absl::Status LateFailure() const;

 private:
  using State = RankPlan::State;
  using Slot = RankPlan::Slot;
  struct SlotFailure {
    int slot = 0;
    Failure failure;
    bool unfit = false;  // another process in its place could not work with the others either
  };

  // Nodes.
  static JoinOptions NotAsked();
  const AgentState* Find(const Agents& agents, int index) const;
  const AgentState* FindEvenIfEnded(const Agents& agents, int index) const;
  void Drop(int slot);
  void DropNode(RankPlan::Node* node);
  void DropLeavingNodes();
  void LeaveNode(int node, const std::string& reason);
  std::string NameOf(int slot) const;

  // These read the agents' texts (membership_reports.cc).
  static bool IsAlive(const Slot& slot);
  void Record(const Agents& agents, absl::Time now);
  void ForEachProcess(const AgentState& agent, const RankPlan::Node& node,
                      const std::function<void(int slot, const SlotState& state)>& record) const;
  std::vector<SlotFailure> NewFailures(const Agents& agents, bool even_if_ended) const;
  void RecordProgress(int node, const AgentState& agent);
  void RecordSlot(int slot, const SlotState& state, absl::Time now);
  void OnReady(int slot, const SlotState& state, absl::Time now);
  void OnLeave(const Slot& member, const JoinOptions& ask, absl::Time now);
  void OnNewcomer(int slot);
  void OnDone(int slot, bool all);
  void OnSuccess(int slot);
  void GoOnAfterWork(absl::Time now);
  bool UpdateComplete();
  void RecordFailure(const SlotFailure& failed, absl::Time now);
  void RecordLateFailure(const SlotFailure& failed);
  bool RecordEnd(const SlotFailure& failed, absl::Time now);
  bool CountRestart(int slot, bool was_starting, absl::Time now);
  void RecordCause(const Failure& cause);

  // The decisions that follow.
  void Decide(const Agents& agents, const NeededNodes& needed, absl::Time now);
  void Order(RegroupOrder order, const std::string& reason);
  void Regroup(absl::Time now);
  bool Break(const std::string& text, absl::Time now);
  void BreakOrEnd(const std::string& text, absl::Time now);
  std::string BarrenText() const;
  void End(const absl::Status& verdict);
  bool OthersGoOn(int least_nodes) const;
  void StartAwaited(int least_nodes, absl::Time now);
  void MarkLate(absl::Time now);
  std::vector<int> NodesByRank() const;
  void RecordSilence(const Agents& agents);
  void LeaveOutCutHosts(const Agents& agents, const NeededNodes& needed, absl::Time now);
  void TryToForm(const Agents& agents, const NeededNodes& needed, absl::Time now);
  bool WaitsForAll(const std::vector<int>& slots, absl::Time now);
  void WaitForMore(const std::string& number, int most_nodes, absl::Time now);
  std::optional<StepFailure> OwnFailure() const;
  void Form(std::vector<int> members, const AgentState& first);
  void ForgetLastGeneration();
  void LookAt(absl::Time time) { next_look_ = std::min(next_look_, time); }

  const Limits limits_;
  RankPlan plan_;
  ProcessRestarts restarts_;
  CutHosts cuts_;
  int64_t cuts_decided_ = 0;       // the last generation whose ranks' words about silent hosts have been decided on
  std::vector<JoinOptions> asks_;  // by slot: what its process has asked for last
  std::vector<Failure> failures_;  // since the last generation began
  absl::Time formed_at_, regroups_since_;
  bool may_kill_ = false;  // members that do not leave in time
  bool changed_ = false;   // plan_, since the last Update()
  absl::Time next_look_ = absl::InfiniteFuture();
};

// "host a: <status>", with its payloads. The only node of a job has no name.
absl::Status OnHost(const absl::Status& status, const std::string& host);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_MEMBERSHIP_H_
