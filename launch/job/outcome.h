// From how every rank ended to the one line that says why the launch failed.

#ifndef LOCKSTEP_LAUNCH_JOB_OUTCOME_H_
#define LOCKSTEP_LAUNCH_JOB_OUTCOME_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/launch/link/rank_generation.h"
#include "lockstep/launch/report/rank_failure.h"

namespace lockstep::launch {

struct Outcome {
  RankFailure end;  // who it is and how it ended; its end means nothing while it runs
  bool ended = false;
  bool failed = false;     // it ended, and not well
  bool resumable = false;  // it ended with kResumableExitCode after its work (launch/link), so the rank has not failed
  bool told_to_end = false;      // it ran when the launcher sent the first signal
  bool needed_kill = false;      // and still ran after the grace period
  bool outlived_kill = false;    // and even after SIGKILL
  char process_state = '?';      // then the kernel's letter, as D for a process that is stuck in a system call
  bool did_not_leave = false;    // it was killed, since it had not left a broken generation in time (launch/link)
  bool others_go_on = false;     // it failed, and the other ranks go on without it (launch/link)
  bool stopped = false;          // it had been stopped, as by SIGSTOP, when it was told to end
  bool reported_before = false;  // it was told to end, but had reported its own error before
  bool consequence = false;      // another rank's failure caused it: it reported so, or knew of that failure before
  int64_t time_ns = 0;           // when it ended, or the earlier time at which it reported its error
  absl::StatusCode code = absl::StatusCode::kUnknown;  // the reported one
};

// A sentence without its end: "rank 1 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL)". A negative rank means
// that the process has none yet.
std::string EndText(const Outcome& outcome);

// The failure that the launcher tells the next generation: nullopt unless the rank has failed by itself, or was killed
// since it did not leave.
std::optional<StepFailure> OwnFailure(const Outcome& outcome);

// The first cause, among the ranks that failed by themselves and without which the others do not go on. A failure that
// is not a consequence comes before one that is; then a rank that a signal killed before one that exited, because ranks
// exit when a peer is killed and not the other way round; then the earliest. SIGABRT and SIGPIPE count as an exit: an
// uncaught "connection closed by peer" raises SIGABRT, and a write to a peer that is gone raises SIGPIPE. Null if none
// failed.
const Outcome* FirstCause(const std::vector<Outcome>& outcomes);

// Returns whether a signal killed the rank, in the sense of FirstCause().
bool WasKilled(const Outcome& outcome);

// Returns whether another process ended the process that this signal ended: a process's own fault does not raise it.
// False if `signal` is 0.
bool IsFromOutside(int signal);

// The last line adds this to the failure of a rank after which nothing was left to do.
inline constexpr char kAfterWork[] = ", after all ranks had done their work";

// Returns whether no later failure can come before this one: a signal killed the rank, and not one that schedulers and
// terminals send to the launcher as well.
bool IsCertain(const Outcome& cause);

// Returns whether a rank that still runs may be the cause: all failures so far are consequences, and none of them is a
// timeout, which a rank that has not failed can cause.
bool TruerCauseMayCome(const std::vector<Outcome>& outcomes);

// One line about `cause`, which is one of `outcomes`, and what became of the others, which had `patience` before
// SIGKILL. It includes the reports of other ranks that are not consequences, and how a rank without a report ended
// before the cause. Its code is the reported one if the rank
// reported a message, Aborted for a rank killed by a signal, else Unknown.
absl::Status FailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience);

// FailureStatus() while the launcher waits for the others, up to `patience`.
absl::Status EarlyFailureStatus(const Outcome& cause, const std::vector<Outcome>& outcomes, absl::Duration patience);

// Cancelled, with the mark of the signal, which ExitCode() turns into 128 + signal.
absl::Status CancelledBySignal(int signal, absl::string_view message);

// Returns whether a status has that mark.
bool IsStop(const absl::Status& status);

// The status of a launch that was told to stop. Cancelled.
absl::Status StoppedStatus(int signal, const std::vector<Outcome>& outcomes, absl::Duration patience);

// Marks `status`, NotFound or PermissionDenied: a program could not be executed. The mark lets ExitCode() distinguish
// it from a rank's own status of that code.
absl::Status MarkNotExecuted(absl::Status status);

// Adds the last lines of the failed rank's stderr, and the file that has them, to the status about it.
void AddStderr(const std::string& file, const std::vector<std::string>& lines, absl::Status* status);

// "SIGKILL", or "signal 40" if the signal has no name.
std::string SignalName(int signal);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_OUTCOME_H_
