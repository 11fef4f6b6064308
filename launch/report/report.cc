#include "lockstep/launch/report/report.h"

#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {

bool ReportError(const absl::Status& status) { return !status.ok() && WriteReport(status); }

void RecordFailureOfAnotherRank() { WriteTold(); }

void RecordErrorOfAnotherRank(const absl::Status& status) { WriteHeard(status.message()); }

void ForgetFailuresOfOtherRanks() { EraseNotes(); }

}  // namespace lockstep::launch
