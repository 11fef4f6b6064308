#include "lockstep/tools/launch/report.h"

#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch {

bool ReportError(const absl::Status& status) { return !status.ok() && internal::WriteReport(status); }

void NoteFailureOfAnotherRank() { internal::WriteTold(); }

void NoteErrorOfAnotherRank(const absl::Status& status) { internal::WriteHeard(status.message()); }

void ForgetFailuresOfOtherRanks() { internal::EraseNotes(); }

}  // namespace lockstep::launch
