// Which nodes can make the next start of a job's ranks, and why a job cannot form. Part of the Coordinator, and as
// pure.

#ifndef LOCKSTEP_LAUNCH_JOB_CANDIDATES_H_
#define LOCKSTEP_LAUNCH_JOB_CANDIDATES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/job.h"

namespace lockstep::launch {

// The agents that can start now, in the order of their node ranks.
std::vector<std::string> Candidates(const JobState& job, const Agents& agents);

// Before the first start, what cannot come right by waiting: InvalidArgument for a node rank that is used twice or too
// large.
absl::Status CheckNodeRanks(const JobState& job, const Agents& agents);

// DeadlineExceeded: too few candidates came within `join_timeout`. Names who came and who is missing.
absl::Status NotEnough(const JobState& job, const Agents& agents, absl::Duration join_timeout);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_CANDIDATES_H_
