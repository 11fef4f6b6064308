#include "lockstep/ddp/internal/buckets.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace lockstep::ddp::internal {
namespace {

struct Kind {
  std::vector<int> items;  // of the open bucket
  int64_t bytes = 0;
  size_t closed = 0;
};

}  // namespace

std::vector<std::vector<int>> AssignBuckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& limits,
                                            BucketOrder order) {
  std::vector<std::vector<int>> buckets;
  std::map<std::pair<c10::ScalarType, std::string>, Kind> kinds;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].sparse) {
      buckets.push_back({static_cast<int>(i)});
      continue;
    }
    Kind& kind = kinds[{items[i].dtype, items[i].device.str()}];
    kind.items.push_back(static_cast<int>(i));
    kind.bytes += items[i].bytes;
    if (kind.bytes < limits[std::min(kind.closed, limits.size() - 1)]) continue;
    buckets.push_back(std::exchange(kind.items, {}));
    kind.bytes = 0;
    ++kind.closed;
  }
  for (auto& entry : kinds) {
    if (!entry.second.items.empty()) buckets.push_back(std::move(entry.second.items));
  }
  if (order == BucketOrder::kFirstItem) {
    std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  }
  return buckets;
}

}  // namespace lockstep::ddp::internal
