// Detects that training stands still, from the steps of a node's ranks and from their reports of calls that last long.
// Pure: all times are of one clock that never goes back.

#ifndef LOCKSTEP_LAUNCH_JOB_STALL_WATCH_H_
#define LOCKSTEP_LAUNCH_JOB_STALL_WATCH_H_

#include <stdint.h>

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lockstep::launch {

// A line comes when no rank of the node has completed a step for 30 s, and then each time that this has lasted twice as
// long. It waits 6 s for a rank that says why. There is none while nobody has said anything in this job: its ranks may
// report no steps.
class StallWatch {
 public:
  // `timeout`: after which the rank is to be ended that the others wait for.
  explicit StallWatch(absl::Duration timeout) : timeout_(timeout) {}

  // The ranks begin a generation.
  void OnGeneration(int64_t now_ns);
  void OnStep(int64_t now_ns);
  // A rank says why it waits, and the first rank that it waits for, or -1.
  void OnReport(const std::string& why, int rank, int64_t now_ns);

  // The line that is due, or "".
  std::string TakeLine(int64_t now_ns);
  // The rank that is to be ended now. Each rank once, until a step is completed or another generation begins.
  std::optional<int> TakeCulprit(int64_t now_ns);
  // When to ask for a line at the latest, even if nothing happens. kNever if there is nothing to wait for.
  int64_t next_look() const;

 private:
  void Begin(int64_t now_ns, bool stepped);
  bool IsFresh(int64_t now_ns) const;

  const absl::Duration timeout_;
  bool begun_ = false;    // ranks are in a generation
  bool heard_ = false;    // of a step, or why a rank waits
  bool stepped_ = false;  // in this generation
  int64_t since_ns_ = 0;  // the last step, or the begin of the generation
  absl::Duration next_;   // after which the next line is due
  std::string why_;
  int rank_ = -1;
  std::optional<int64_t> said_ns_;  // when a rank has said so
  bool ended_ = false;              // TakeCulprit() has named that rank
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_STALL_WATCH_H_
