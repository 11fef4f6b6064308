// Agents and limits of a job, for tests of its decisions.

#ifndef LOCKSTEP_LAUNCH_JOB_TESTING_AGENTS_H_
#define LOCKSTEP_LAUNCH_JOB_TESTING_AGENTS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"

namespace lockstep::launch::testing {

inline const absl::Time kStart = absl::UnixEpoch();

inline AgentState Ready(const std::string& host, int ranks = 1) {
  AgentState state;
  state.host = host;
  state.address = absl::StrCat(host, ".net");
  state.port = 1000;
  state.ranks = ranks;
  return state;
}

inline JobLimits Limits(int min_nodes, int max_nodes) {
  JobLimits limits;
  limits.min_nodes = min_nodes;
  limits.max_nodes = max_nodes;
  return limits;
}

// The agent has seen that it is a member.
inline void Enter(const Coordinator& coordinator, const std::string& id, Agents* agents) {
  const JobState& job = coordinator.job();
  agents->at(id).start = job.start;
  agents->at(id).entry = job.members[NodeRankOf(job, id)].entry;
}

// All members run the ranks of the last generation.
inline void RunRanks(const Coordinator& coordinator, Agents* agents) {
  for (const Member& member : coordinator.job().members) {
    Enter(coordinator, member.agent, agents);
    agents->at(member.agent).phase = AgentState::Phase::kRunning;
  }
}

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_JOB_TESTING_AGENTS_H_
