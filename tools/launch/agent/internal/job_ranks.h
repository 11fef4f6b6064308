// Decides for a job of several nodes which processes train together, if they stay when another one fails (agent_link):
// Membership, over the slots of all nodes. Part of the Coordinator, and as pure.

#ifndef LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_RANKS_H_
#define LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_RANKS_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/agent/internal/job.h"
#include "lockstep/tools/launch/internal/membership.h"

namespace lockstep::launch::internal {

class JobRanks {
 public:
  // `limits` has what is the job's and not a node's.
  explicit JobRanks(const Membership::Limits& limits) : limits_(limits) {}

  // The members of `job` start their processes, or have done so while another agent led: then it goes on from job.ranks.
  void Start(const JobState& job, const std::vector<absl::Time>& restarts, absl::Time now);

  // Whether the processes stay when one of them is killed, and when one exits: they have formed a generation.
  bool kept() const { return membership_ && membership_->kept(); }
  bool formed() const { return membership_ && membership_->formed(); }

  // The node of a member comes, is lost, or is to leave between two steps.
  void Add(const Member& member, absl::Time now);
  void Lose(const Member& member, const std::string& cause, absl::Time now);
  void Leave(const Member& member);
  // Whether none of its processes takes part any more.
  bool IsGone(const Member& member) const;

  // Takes note of what the agents say of the processes. A generation needs `least_nodes`, and others may come up to
  // `most_nodes`. Whether plan() has changed.
  bool Update(const Agents& agents, int least_nodes, int most_nodes, absl::Time now);

  // When to call Update() at the latest.
  absl::Time next_look() const { return membership_->next_look(); }

  const RankPlan& plan() const { return plan_; }
  int restarts() const { return membership_->restarts(); }
  // Whether all ranks have ended, and have succeeded or done all their work; how one failed by itself after that; and
  // whether a rank has done its work, so that the others are about to.
  bool finished() const { return membership_->finished(); }
  absl::Status LateFailure() const;
  bool finishes() const { return membership_->memory().finished_members > 0; }

 private:
  struct Failure {
    NodeFailure failure;
    std::string host;
    int slot = 0;
  };

  bool Resume(const JobState& job, absl::Time now);
  int IndexOf(const Member& member) const;
  // The state of the agent of a node that has said something of its processes, or null.
  const AgentState* Find(const Agents& agents, int node) const;
  void TakeAsks(const Agents& agents);
  void Hear(const Agents& agents, absl::Time now);
  void HearDone(int slot, bool all);
  bool HearSlot(int slot, const SlotState& state, absl::Time now);
  void HearFailures(std::vector<Failure> failures, absl::Time now);
  void NoteLateFailure(const Failure& failed);
  void HearProgress(int node, const AgentState& agent);
  bool MayBeRank0(const Agents& agents, int slot) const;
  std::string NameOf(int slot) const;
  void Carry(const Membership::Decision& decision, const Agents& agents);
  void NoteGeneration(const Membership::Decision& decision, const Agents& agents);
  void NoteVerdict(absl::Status verdict);

  Membership::Limits limits_;
  std::optional<Membership> membership_;
  RankPlan plan_;
  bool has_asks_ = false;          // of the processes that were ready before this object was made
  bool changed_ = false;           // plan_, since the last Update()
  std::vector<Failure> failures_;  // since the last generation began
};

// The order of causes, as FirstCause() has it for the ranks of one node.
bool Before(const NodeFailure& a, const NodeFailure& b);

// "host a: <status>", with its payloads.
absl::Status OnHost(const absl::Status& status, const std::string& host);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_AGENT_INTERNAL_JOB_RANKS_H_
