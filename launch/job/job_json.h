// The texts of a rendezvous: what agents post, and what the leading agent decides (job.h).

#ifndef LOCKSTEP_LAUNCH_JOB_JOB_JSON_H_
#define LOCKSTEP_LAUNCH_JOB_JOB_JSON_H_

#include <stdint.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/launch/job/job.h"

namespace lockstep::launch {

// One line of JSON. Times become ages, since the nodes' clocks differ: `now_ns` is MonotonicNanos() at the sender, and
// `received_ns` at the receiver.
std::string EncodeAgent(const AgentState& state, int64_t now_ns);
std::string EncodeJob(const JobState& state);

// InvalidArgument for a text that the functions above did not write.
absl::StatusOr<AgentState> DecodeAgent(absl::string_view text, int64_t received_ns);
absl::StatusOr<JobState> DecodeJob(absl::string_view text);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_JOB_JSON_H_
