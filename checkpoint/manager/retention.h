// Which of a directory's checkpoints may go.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_

#include <cstdint>
#include <vector>

namespace lockstep::checkpoint {

struct Retention {
  int keep_last = 3;       // the highest steps; 0: all
  int64_t keep_every = 0;  // steps that it divides; 0: none
};

// Those of `steps`, ascending, that `retention` does not keep. `saved`, which is known to be whole, is never among
// them.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps, int64_t saved, const Retention& retention);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_
