// The cost for many ranks to form a group: time, requests to the store, and descriptors.

#ifndef LOCKSTEP_COMM_TESTING_FORMING_H_
#define LOCKSTEP_COMM_TESTING_FORMING_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::comm::testing {

// One rank's share.
struct FormingCost {
  int64_t requests = 0;           // sent to the store while the group is formed
  int64_t descriptors = 0;        // that the group keeps open
  int64_t barrier_requests = 0;   // sent for a monitored barrier
  int64_t subgroup_requests = 0;  // sent for a sub-group of all ranks
};

struct Forming {
  int64_t median_requests = 0;  // of the ranks but 0 and 1, while the group is formed; `others` is the most of any
  absl::Duration forming;       // from the first call of InitProcessGroup() to the last return
  absl::Duration cpu;           // processor time of all ranks together, up to then
  absl::Duration leaving;       // as `forming`, for the groups' destructors
  FormingCost rank0;            // serves the store
  FormingCost rank1;            // serves the watch of a large group
  FormingCost others;           // the most of any other rank
};

// Forks `world_size` processes, which form a group over `backend` and a sub-group, call MonitoredBarrier(), and destroy
// both groups again. Their store is rank 0's, at a port of the loopback interface. If `open_files` is not 0, a process
// may have so many descriptors, besides the ones that it inherits: its hard limit. The last rank comes `late` after the
// others, so that they wait for it. Like Process, it requires that the calling process has only one thread. Returns the
// first error of a rank, or DeadlineExceeded if a rank says nothing within 5 minutes.
absl::StatusOr<Forming> FormAGroup(int world_size, const std::string& backend, int open_files = 0,
                                   absl::Duration late = absl::ZeroDuration());

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_FORMING_H_
