// Decides which checkpoints of a directory are removed.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_

#include <cstdint>
#include <vector>

namespace lockstep::checkpoint {

struct Retention {
  int keep_last = 3;       // number of highest steps to keep; 0: all
  int64_t keep_every = 0;  // keeps the steps divisible by it; 0: none
};

// The steps of `steps` (ascending) that `retention` does not keep. Never contains `saved`, whose file is known to be
// intact.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps, int64_t saved, const Retention& retention);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_RETENTION_H_
