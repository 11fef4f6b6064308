// From how every rank ended to the one line that says why the launch failed.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_OUTCOME_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_OUTCOME_H_

#include <stdint.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/failure.h"

namespace lockstep::launch::internal {

struct Outcome {
  RankFailure end;  // who it is and how it ended; its end means nothing while it runs
  bool ended = false;
  bool failed = false;           // it ended, and not well
  bool told_to_end = false;      // it ran when we sent the first signal
  bool needed_kill = false;      // and still did after the grace
  bool outlived_kill = false;    // and even after SIGKILL
  bool stopped = false;          // it had been stopped, as by SIGSTOP, when it was told to end
  bool reported_before = false;  // it was told to end, but had reported an error of its own before
  bool consequence = false;      // its failure came of another rank's: it says so, or knew of that one before
  int64_t time_ns = 0;           // when it ended, or the earlier time at which it reported its error
  absl::StatusCode code = absl::StatusCode::kUnknown;  // the reported one
};

// The rank to blame among those that failed by themselves. A failure that is not a consequence comes before one that
// is; then a rank that a signal killed before one that exited, because ranks exit when a peer is killed and not the
// other way round; then the earliest. SIGABRT and SIGPIPE count as an exit: an uncaught "connection closed by peer"
// ends by the one, and writing to a peer that is gone by the other. Null if none failed.
const Outcome* FirstCause(const std::vector<Outcome>& outcomes);

// Whether a rank that still runs may be the one to blame: all failures known are consequences, and not of a rank that
// was waited for in vain, since such a rank has not failed.
bool TruerCauseMayCome(const std::vector<Outcome>& outcomes);

// One line about `cause`, which is one of `outcomes`, and what became of the others, which had `patience` before
// SIGKILL. It has what other ranks reported, too, where that is no consequence. Its code is the reported one if there
// is a message, Aborted for a rank killed by a signal, else Unknown.
absl::Status FailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience);

// The same while the others are being waited for, up to `patience`.
absl::Status EarlyFailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience);

// The status of a launch that was told to stop. Cancelled.
absl::Status StoppedStatus(int signal, const std::vector<Outcome>& outcomes, absl::Duration patience);

// `status`, NotFound or PermissionDenied, marked as saying that a program could not be executed: ExitCode() tells such
// a one by the mark from a rank's own status of that code.
absl::Status MarkNotExecuted(absl::Status status);

// "SIGKILL", or "signal 40" where it has no name.
std::string SignalName(int signal);

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_OUTCOME_H_
