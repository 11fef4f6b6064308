// The cost for many ranks to watch each other, and the time until they know that one of them died.

#ifndef LOCKSTEP_COMM_TESTING_WATCHING_H_
#define LOCKSTEP_COMM_TESTING_WATCHING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::comm::testing {

struct WatchingOptions {
  int world_size = 2;
  int victim = 1;                              // the rank that is killed
  absl::Duration idle = absl::Seconds(1);      // how long the ranks do nothing before that
  absl::Duration patience = absl::Minutes(5);  // for each line that a rank says
};

struct Watching {
  // While the ranks did nothing. Without the threads that run the test.
  absl::Duration idle_cpu;   // of all ranks together
  int64_t idle_wakeups = 0;  // of all ranks together
  // From the signal that killed the victim until a survivor knew the cause.
  absl::Duration median;
  absl::Duration last;
};

// Forks `world_size` processes, which meet at rank 0's store and create a watch, and kills one of them. Like Process,
// it requires that the calling process has only one thread. Returns the first error of a rank; Internal if survivors do
// not all get the same cause, or it does not name the signal; DeadlineExceeded if a rank says nothing in time.
absl::StatusOr<Watching> WatchARankDie(const WatchingOptions& options);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_WATCHING_H_
