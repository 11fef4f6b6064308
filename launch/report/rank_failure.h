// How a rank failed (failure.h).

#ifndef LOCKSTEP_LAUNCH_REPORT_RANK_FAILURE_H_
#define LOCKSTEP_LAUNCH_REPORT_RANK_FAILURE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::launch {

struct RankFailure {
  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  int exit_code = -1;   // -1 if a signal ended it
  int signal = 0;       // 0 if it exited
  std::string message;  // the rank's report, in one line; may be empty

  // If the rank's stderr was redirected or teed: the file, and its last lines, at most 10 and at most 2 KiB, with
  // control characters escaped.
  std::string stderr_file;
  std::vector<std::string> stderr_lines;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_REPORT_RANK_FAILURE_H_
