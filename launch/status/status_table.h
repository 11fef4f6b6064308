// The texts of `launch status` and `launch top`.

#ifndef LOCKSTEP_LAUNCH_STATUS_STATUS_TABLE_H_
#define LOCKSTEP_LAUNCH_STATUS_STATUS_TABLE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/launch/status/job_client.h"
#include "lockstep/launch/status/job_status.h"

namespace lockstep::launch {

struct TableSize {
  int width = 0;   // columns; longer lines are cut; 0: no limit
  int height = 0;  // lines; further ranks become one line that counts them; 0: no limit
};

// The lines about one job. Control characters in names are escaped. With `colours` there are escape sequences: for the
// heads of the columns, for ranks that did not end well, and for the slowest rank. That is the one with the lowest
// step, or of ranks at the same step the one that is more than a tenth slower than the fastest.
std::vector<std::string> StatusTable(const JobStatus& status, const TableSize& size, bool colours);

// One line for each job.
std::vector<std::string> JobsTable(const std::vector<RunningJob>& jobs, const TableSize& size, bool colours);

// "12s", "3m12s", "2h03m", "5d04h".
std::string ShortTime(absl::Duration time);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_STATUS_TABLE_H_
