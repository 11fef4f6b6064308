// How a rank tells its launcher why it failed.
//
//   int main() {
//     const absl::Status status = Train();
//     if (status.ok()) return 0;
//     lockstep::launch::ReportError(status);   // "rank 1 (...) exited with code 1: <the message>"
//     return 1;
//   }

#ifndef LOCKSTEP_TOOLS_LAUNCH_REPORT_H_
#define LOCKSTEP_TOOLS_LAUNCH_REPORT_H_

#include "absl/status/status.h"

namespace lockstep::launch {

// Hands `status` to the launcher, which puts code and message into its own status if this process then ends with an
// error. The first report of a rank counts, later ones are dropped; a message past 4096 bytes is cut. Writes nothing
// for an OK status.
//
// Returns whether it was written: false under a launcher that takes no reports, or under none. Besides Lockstep's
// launcher ($LOCKSTEP_ERROR_FILE) torchrun understands it ($TORCHELASTIC_ERROR_FILE). Blocks for one write to a file in
// memory. Thread-safe.
bool ReportError(const absl::Status& status);

// Tells the launcher that this process's group has failed because of another rank. However this process fails from now
// on (by a report, an exit code, or an exception that nobody catches), that is a consequence, and the launcher looks
// for the cause elsewhere. comm's process groups call it. Blocks for one write to a file in memory. Thread-safe.
void NoteFailureOfAnotherRank();

// The same for one error, which this process may survive: if it fails by an error whose message has that of `status` in
// it, it is another rank's.
void NoteErrorOfAnotherRank(const absl::Status& status);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_TOOLS_LAUNCH_REPORT_H_
