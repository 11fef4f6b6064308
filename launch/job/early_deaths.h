// Processes that were killed before any has said that it stays (launch/link), as while they loaded their libraries. If
// their program is one that may stay, the launcher waits a little for another process to say so. Pure.

#ifndef LOCKSTEP_LAUNCH_JOB_EARLY_DEATHS_H_
#define LOCKSTEP_LAUNCH_JOB_EARLY_DEATHS_H_

#include <stdint.h>

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/job/failure.h"

namespace lockstep::launch {

class EarlyDeaths {
 public:
  // A process that lives longer has loaded its libraries.
  static constexpr absl::Duration kLoading = absl::Minutes(1);
  // How long the launcher waits. Meanwhile most programs have loaded theirs.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  using Death = std::pair<int, Failure>;  // of the process of a slot

  // How a process failed that lived for `lived_ns`, at `now_ns`. Whether the launcher waits with it. Take() returns it
  // again.
  bool Hold(int slot, const Failure& failure, int64_t lived_ns, int64_t now_ns);

  // The deaths that the launcher must decide about now: all, if a process has said that it stays, if no other one can
  // do so since `others_run` is false, or if the time is over.
  std::vector<Death> Take(bool stays, bool others_run, int64_t now_ns);

  bool empty() const { return deaths_.empty(); }
  int64_t next_look() const { return deaths_.empty() ? kNever : until_ns_; }

 private:
  std::vector<Death> deaths_;
  int64_t until_ns_ = kNever;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_EARLY_DEATHS_H_
