// Lets a rank tell its launcher why it failed.
//
//   int main() {
//     const absl::Status status = Train();
//     if (status.ok()) return 0;
//     lockstep::launch::ReportError(status);   // "rank 1 (...) exited with code 1: <the message>"
//     return 1;
//   }

#ifndef LOCKSTEP_LAUNCH_REPORT_REPORT_H_
#define LOCKSTEP_LAUNCH_REPORT_REPORT_H_

#include "absl/status/status.h"

namespace lockstep::launch {

// Reports `status` to the launcher. If this process then ends with an error, the launcher puts the code and message
// into its status. Only the first report of a rank counts. A message of more than 4096 bytes is truncated. An OK status
// writes nothing.
//
// Returns whether the report was written: false without a launcher, or if it does not accept reports. Besides
// Lockstep's launcher ($LOCKSTEP_ERROR_FILE), torchrun accepts reports ($TORCHELASTIC_ERROR_FILE). Blocks for one write
// to a file in memory. Thread-safe.
bool ReportError(const absl::Status& status);

// Tells the launcher that this process's group has failed because of another rank. If this process then fails (by a
// report, an exit code, or an uncaught exception), the launcher treats that as a consequence and looks for the cause
// elsewhere. comm's process groups call it. Blocks for one write to a file in memory. Thread-safe.
void RecordFailureOfAnotherRank();

// Like RecordFailureOfAnotherRank(), for one error, after which this process may continue. If it later fails with an
// error whose message contains that of `status`, the launcher attributes it to another rank.
void RecordErrorOfAnotherRank(const absl::Status& status);

// Takes back both kinds of notes: this process has outlived the failures of other ranks, so its later errors are its
// own. comm::InitProcessGroup calls it once a new group has formed and no failed one is left. Does nothing after
// ReportError(). Thread-safe.
void ForgetFailuresOfOtherRanks();

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_REPORT_REPORT_H_
