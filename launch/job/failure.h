// A failure on its way from the process that failed to the job's leader, and from there to all ranks.

#ifndef LOCKSTEP_LAUNCH_JOB_FAILURE_H_
#define LOCKSTEP_LAUNCH_JOB_FAILURE_H_

#include <stdint.h>

#include <optional>
#include <tuple>

#include "absl/status/status.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

// How one process failed; or the ranks of one node, if one of them failed or they could not start; or a node.
struct Failure {
  absl::Status status;         // the sentence about the first cause, with the payloads of a launch's status; OK: none
  bool not_started = false;    // a program could not be executed
  bool consequence = false;    // another rank's failure caused it
  bool killed = false;         // WasKilled() (outcome.h) the rank that is named, or its node was lost
  bool did_not_leave = false;  // the rank was killed, since it had not left a broken generation in time
  int64_t time_ns = 0;         // when the rank failed, on the clock of the process that holds this object
  std::optional<StepFailure> own;  // what the ranks are told, if the rank failed by itself
};

// The order of causes, as FirstCause() (outcome.h) explains it.
std::tuple<bool, bool, int64_t> CauseOrder(bool consequence, bool killed, int64_t time_ns);
bool Before(const Failure& a, const Failure& b);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_FAILURE_H_
