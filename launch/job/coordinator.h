// Decides for a job of one or several nodes when its ranks start, end, and start again, and why. Pure: a
// simulator drives it as the agents do.
//
//   Coordinator coordinator(limits, last_decision);
//   if (coordinator.Update(agents, now)) Publish(coordinator.job());
//   // call Update() again when an agent's state has changed, and at coordinator.next_look()
//
// One life of a job: kForming until enough agents are ready, then kRunning. It is kEnding if a rank fails, if a node is
// lost or leaves, or if another one can take part. When all members have ended their ranks, it is kForming again, or
// kDone. If all ranks succeed, it is kDone. If the ranks stay when another one fails (Membership), it is kRunning until
// they cannot go on: nodes are lost, leave and come meanwhile.

#ifndef LOCKSTEP_LAUNCH_JOB_COORDINATOR_H_
#define LOCKSTEP_LAUNCH_JOB_COORDINATOR_H_

#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/departures.h"
#include "lockstep/launch/job/flag_check.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/restart_policy.h"

namespace lockstep::launch {

struct JobLimits {
  int min_nodes = 1;
  int max_nodes = 1;                                // further nodes wait as spares
  absl::Duration join_timeout = absl::Minutes(10);  // how long a start may take to form
  absl::Duration last_call = absl::Seconds(30);     // how long the first start waits for more than min_nodes
  absl::Duration newcomer_wait = absl::Seconds(1);  // how long a node must be ready before the ranks restart for it
  int max_restarts = 0;                             // after failures; a restart because nodes come or leave is free
  absl::Duration restart_window = absl::InfiniteDuration();  // a restart that is older does not count
  absl::Duration head_start;                                 // ProcessRestarts::Limits'; of a job of one node only
  std::string anchor;        // the agent without whom the others cannot go on; "" if there is none
  std::string host;          // of the launcher that leads, for messages
  JobFlags flags;            // of that launcher
  JobProgram program;        // the same
  bool same_program = true;  // whether launchers with another one are refused
};

class Coordinator {
 public:
  // `last` is the decision of the agent that led before, or {}. `restarts`: when the first of its restarts were made,
  // as this agent has seen them. The others count as if they were made now.
  Coordinator(const JobLimits& limits, JobState last, absl::Time now, std::vector<absl::Time> restarts = {});

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Takes note of the agents that are there at `now`, which never decreases. Whether job() has changed.
  bool Update(const Agents& agents, absl::Time now);

  const JobState& job() const { return job_; }

  // When to call Update() at the latest, even if no agent's state changes.
  absl::Time next_look() const { return next_look_; }

 private:
  bool Decide(const Agents& agents, absl::Time now);

  // Each takes one step, if there is one to take.
  bool Step(const Agents& agents, absl::Time now);
  bool StepForming(const Agents& agents, absl::Time now);
  bool StepRunning(const Agents& agents, absl::Time now);
  bool StepEnding(const Agents& agents, absl::Time now);

  // While the ranks stay when another one fails (coordinator_staying.cc).
  bool StepStaying(const Agents& agents, absl::Time now);
  bool RecordRanks(const Agents& agents, absl::Time now);
  bool EndIfNeededNodeLeaves(const Agents& agents);
  bool EndIfUnformedRankExits(const Agents& agents);
  bool RecordMember(const Member& member, const Agents& agents, absl::Time now);
  bool LeavesInTime(const Member& member, absl::Time now);
  bool IsSurplus(const Member& member) const;
  void Remove(const std::string& agent);
  bool AddNewcomers(const Agents& agents, absl::Time now);
  bool IsNewcomer(const std::string& id, const Agents& agents) const;

  Member MemberOf(const std::string& id, const AgentState& agent);
  bool MayForm(const Agents& agents, int candidates, absl::Time now);
  void Form(const Agents& agents, const std::vector<std::string>& candidates, absl::Time now);
  bool RecordNodes(const Agents& agents);
  bool RecordDrains(const Agents& agents);
  bool RecordResize(const Agents& agents);
  bool RecordFlags(const Agents& agents);
  bool RecordPrograms(const Agents& agents);
  bool HasTooManyNodes() const { return static_cast<int>(job_.members.size()) > job_.limits.max_nodes; }
  std::string Newcomer(const Agents& agents, absl::Time now);
  void End(std::string reason);
  void Regroup(std::string reason, absl::Time now);
  void Finish(absl::Status result);
  absl::Status Verdict(const Agents& agents) const;
  void Fail(const absl::Status& failure, bool not_started, absl::Time now);
  absl::Status FailureOfNodes(const Agents& agents, bool* not_started) const;
  std::string OtherHostsText() const;
  std::string OutOfReachText(const Agents& agents) const;
  void LookAt(absl::Time time);

  const JobLimits limits_;
  JobState job_;
  std::vector<absl::Time> restart_times_;  // of job_.restarts
  RestartPolicy policy_;
  Membership ranks_;
  Departures departures_;
  FlagCheck flag_check_;
  absl::Time forming_since_;                          // when this phase began, while kForming
  absl::Time formed_;                                 // when the last start was formed
  absl::Time hold_until_ = absl::InfinitePast();      // none forms before: the pause of the policy
  absl::Time enough_since_ = absl::InfiniteFuture();  // when min_nodes were there
  absl::Time newcomer_since_ = absl::InfiniteFuture();
  std::map<int64_t, absl::Time> leaves_since_;  // by entry, of members whose ranks stay
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_COORDINATOR_H_
