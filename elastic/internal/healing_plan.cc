#include "lockstep/elastic/internal/healing_plan.h"

#include <algorithm>

namespace lockstep::elastic::internal {

Healing PlanHealing(const std::vector<int64_t>& commits) {
  Healing healing;
  healing.newest = *std::max_element(commits.begin(), commits.end());
  for (size_t rank = 0; rank < commits.size(); ++rank) {
    const bool has_it = commits[rank] == healing.newest && healing.newest != kNoState;
    (has_it ? healing.sources : healing.receivers).push_back(static_cast<int>(rank));
  }
  return healing;
}

Healing PlanStart(const std::vector<int64_t>& commits, const std::vector<uint64_t>& hashes) {
  Healing healing;
  for (size_t rank = 0; rank < commits.size(); ++rank) {
    if (commits[rank] == 0 && healing.sources.empty()) {
      healing.sources = {static_cast<int>(rank)};
    } else if (commits[rank] < 0 || hashes[rank] != hashes[healing.sources[0]]) {
      healing.receivers.push_back(static_cast<int>(rank));
    }
  }
  return healing;
}

// A rank that has completed no step may have another initial state than the first rank had.
bool HealsInPlace(int64_t commits, int64_t newest) { return commits == kNoState || (commits == 0 && newest > 0); }

}  // namespace lockstep::elastic::internal
