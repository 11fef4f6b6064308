// Statistics of DistributedDataParallel as a trace that Perfetto and chrome://tracing show.

#ifndef LOCKSTEP_DDP_CHROME_TRACE_H_
#define LOCKSTEP_DDP_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp {

// Writes the steps, of any ranks, to a file in the Chrome trace format, for Perfetto and chrome://tracing. Each rank is
// a process, with a row for forward and backward and rows for the buckets. If the file cannot be written, returns the
// system's error, with absl::ErrnoToStatus's code.
absl::Status WriteChromeTrace(absl::string_view path, const std::vector<StepStatistics>& steps);

// Returns the text that WriteChromeTrace() writes.
std::string ChromeTrace(const std::vector<StepStatistics>& steps);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_CHROME_TRACE_H_
