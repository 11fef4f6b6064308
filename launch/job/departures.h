// Which nodes of a job leave, have left or were lost, and whether the others go on without them. Part of the
// Coordinator, and as pure.

#ifndef LOCKSTEP_LAUNCH_JOB_DEPARTURES_H_
#define LOCKSTEP_LAUNCH_JOB_DEPARTURES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/job.h"

namespace lockstep::launch {

class Departures {
 public:
  // `job` outlives this object. `anchor`: the agent without whom the others cannot go on; "" if there is none.
  Departures(const JobState& job, std::string anchor);

  // Takes note of who is there. Returns who has left since the last call and may vanish.
  std::vector<Leaver> Update(const Agents& agents);

  // A start begins: nobody has left, was lost or has succeeded.
  void Clear();

  // This agent has stopped being a member.
  void Forget(const std::string& agent);

  // The members whose ranks have all succeeded. They may vanish.
  int succeeded() const { return static_cast<int>(succeeded_.size()); }
  bool HasSucceeded(const std::string& agent) const { return succeeded_.count(agent) != 0; }

  // The members that have vanished before they succeeded.
  const std::set<std::string>& lost() const { return lost_; }
  bool IsLost(const std::string& agent) const { return lost_.count(agent) != 0; }

  // Null if this agent has not left.
  const Leaver* Find(const std::string& agent) const;

  // Because of whom the start ended, if one of its nodes left, or the job; else null.
  const Leaver* First(const Agents& agents) const;

  // Returns whether this agent has left, is about to, or is to leave.
  bool Leaves(const std::string& agent, const Agents& agents) const;

  // Returns whether the job ends if this agent leaves. If the number of nodes is fixed, another one must be there for
  // it.
  bool IsNeeded(const std::string& agent, const Agents& agents) const;

  // Returns whether an agent has left that is needed.
  bool EndJob(const Agents& agents) const;

  // Why the processes of this member have ended; "" if they run.
  std::string LossOf(const Member& member, const Agents& agents) const;

  // Unavailable with the hosts of the lost members; OK if none was lost.
  absl::Status LostStatus() const;

 private:
  const JobState& job_;
  const std::string anchor_;
  std::set<std::string> succeeded_, lost_;  // agents
  std::vector<Leaver> left_;                // in the order in which they left
};

// Cancelled: "host a left the job: it received signal 15 (SIGTERM)".
absl::Status LeftStatus(const Leaver& leaver);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_DEPARTURES_H_
