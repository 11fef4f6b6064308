#include "lockstep/checkpoint/manager/retention.h"

#include <cstddef>

namespace lockstep::checkpoint {

std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& steps, int64_t saved, const Retention& retention) {
  std::vector<int64_t> removed;
  if (retention.keep_last == 0) return removed;
  for (size_t i = 0; i + retention.keep_last < steps.size(); ++i) {
    const bool kept = steps[i] == saved || (retention.keep_every > 0 && steps[i] % retention.keep_every == 0);
    if (!kept) removed.push_back(steps[i]);
  }
  return removed;
}

}  // namespace lockstep::checkpoint
