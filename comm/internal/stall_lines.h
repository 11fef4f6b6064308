// Which words about a call that lasts long become lines for people. Pure.

#ifndef LOCKSTEP_COMM_INTERNAL_STALL_LINES_H_
#define LOCKSTEP_COMM_INTERNAL_STALL_LINES_H_

#include "absl/time/time.h"

namespace lockstep::comm::internal {

// The first word about a call, and then one each time that it has lasted twice as long.
class StallLines {
 public:
  explicit StallLines(absl::Duration first) : first_(first) {}

  // A call, perhaps another one than before, has lasted so long.
  bool IsDue(absl::Duration lasted) {
    if (lasted < last_) next_ = first_;
    last_ = lasted;
    if (lasted < next_) return false;
    while (next_ <= lasted) next_ *= 2;
    return true;
  }

 private:
  const absl::Duration first_;
  absl::Duration last_, next_ = first_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_STALL_LINES_H_
