#include "lockstep/elastic/internal/transfer_plan.h"

#include <algorithm>

namespace lockstep::elastic::internal {

std::vector<Piece> PlanTransfer(const std::vector<int64_t>& sizes, const std::vector<int>& sources,
                                int64_t piece_bytes) {
  std::vector<int64_t> loads(sources.size());
  std::vector<Piece> pieces;
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    for (int64_t begin = 0; begin < sizes[tensor]; begin += piece_bytes) {
      const int64_t size = std::min(piece_bytes, sizes[tensor] - begin);
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += size;
      pieces.push_back({tensor, begin, size, sources[least - loads.begin()]});
    }
  }
  return pieces;
}

// A source that sends to each of many receivers would send the same bytes again and again.
bool Broadcasts(size_t sources, size_t receivers) { return receivers > sources; }

}  // namespace lockstep::elastic::internal
