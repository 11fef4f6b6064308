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

Healing PlanHealing(const std::vector<Progress>& ranks) {
  int64_t newest = kNoState;
  for (const Progress& rank : ranks) newest = std::max(newest, rank.commits + (rank.part == StepPart::kOwnShards));
  std::vector<int64_t> commits;
  bool spreads = false;
  for (const Progress& rank : ranks) {
    const bool steps = rank.part != StepPart::kNothing && rank.commits + 1 == newest;
    commits.push_back(rank.commits + steps);
    spreads |= steps;
  }
  Healing healing = PlanHealing(commits);
  healing.spreads = spreads;
  for (const Progress& rank : ranks) healing.nodes.push_back(rank.node);
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
