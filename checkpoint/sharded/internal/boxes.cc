#include "lockstep/checkpoint/sharded/internal/boxes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::internal {
namespace {

int64_t End(const Box& box, size_t dimension) { return box.offsets[dimension] + box.sizes[dimension]; }

// The dimension in which the boxes begin at the most places.
size_t FinestDimension(const std::vector<Box>& boxes) {
  size_t finest = 0, most = 0;
  for (size_t d = 0; d < boxes.front().offsets.size(); ++d) {
    std::set<int64_t> starts;
    for (const Box& box : boxes) starts.insert(box.offsets[d]);
    if (starts.size() <= most) continue;
    finest = d;
    most = starts.size();
  }
  return finest;
}

}  // namespace

Box WholeBox(std::vector<int64_t> sizes) {
  std::vector<int64_t> offsets(sizes.size(), 0);
  return {std::move(offsets), std::move(sizes)};
}

absl::Status CheckSizes(const std::vector<int64_t>& sizes) {
  constexpr size_t kMaxDimensions = 64;
  if (sizes.size() > kMaxDimensions) return absl::DataLossError("a tensor of more than 64 dimensions");
  int64_t count = 16;
  for (const int64_t size : sizes) {
    if (size < 0) return absl::DataLossError(absl::StrCat("a negative size: ", ToString(sizes)));
    // Zero counts as one, so that the product of the other sizes does not overflow.
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count))
      return absl::DataLossError(absl::StrCat("a size out of range: ", ToString(sizes)));
  }
  return absl::OkStatus();
}

absl::Status CheckInside(const Box& box, const std::vector<int64_t>& sizes) {
  bool inside = box.offsets.size() == sizes.size() && box.sizes.size() == sizes.size();
  for (size_t d = 0; inside && d < sizes.size(); ++d) {
    inside = box.offsets[d] >= 0 && box.sizes[d] >= 0 && box.offsets[d] <= sizes[d] &&
             box.sizes[d] <= sizes[d] - box.offsets[d];
  }
  if (inside) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a part ", ToString(box), " is not inside ", ToString(sizes)));
}

int64_t ElementsOf(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box shared;
  for (size_t d = 0; d < a.offsets.size(); ++d) {
    const int64_t start = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end = std::min(End(a, d), End(b, d));
    if (start >= end) return std::nullopt;
    shared.offsets.push_back(start);
    shared.sizes.push_back(end - start);
  }
  return shared;
}

std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Box>& boxes) {
  if (boxes.size() < 2) return std::nullopt;
  if (boxes.front().offsets.empty()) return std::make_pair<size_t, size_t>(0, 1);
  const size_t sweep = FinestDimension(boxes);
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return boxes[a].offsets[sweep] < boxes[b].offsets[sweep]; });
  std::multimap<int64_t, size_t> open;  // by their ends
  for (const size_t at : order) {
    open.erase(open.begin(), open.upper_bound(boxes[at].offsets[sweep]));
    for (const auto& [end, other] : open) {
      if (Intersect(boxes[at], boxes[other])) return std::minmax(at, other);
    }
    if (ElementsOf(boxes[at].sizes) > 0) open.emplace(End(boxes[at], sweep), at);
  }
  return std::nullopt;
}

std::string ToString(const std::vector<int64_t>& sizes) { return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]"); }

std::string ToString(const Box& box) { return absl::StrCat(ToString(box.sizes), " at ", ToString(box.offsets)); }

}  // namespace lockstep::checkpoint::internal
