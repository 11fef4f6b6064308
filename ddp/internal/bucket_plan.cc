#include "lockstep/ddp/internal/bucket_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// The buckets of one dtype and device.
struct Kind {
  std::vector<int> items;  // of the open bucket
  int64_t bytes = 0;
  size_t closed = 0;
};

constexpr int kNowhere = -1;

std::vector<int> Registration(size_t parameters) {
  std::vector<int> order(parameters);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::string Describe(const BucketItem& item) {
  return absl::StrCat(c10::toString(item.dtype), " on ", item.device.str());
}

template <typename... Parts>
absl::Status Misfit(size_t bucket, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " of the layout ", parts...));
}

// OK if `parameter` may be in a bucket with `first`.
absl::Status CheckTogether(size_t bucket, const PlannedParameter& first, const PlannedParameter& parameter) {
  if (first.item.sparse || parameter.item.sparse) {
    const std::string& sparse = first.item.sparse ? first.name : parameter.name;
    return Misfit(bucket, "has ", sparse, ", whose gradient is sparse, and others: expected it alone");
  }
  const std::string a = Describe(first.item), b = Describe(parameter.item);
  if (a == b) return absl::OkStatus();
  return Misfit(bucket, "has ", first.name, ", ", a, ", and ", parameter.name, ", ", b,
                ": expected one dtype and device");
}

}  // namespace

Layout AssignBuckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& limits, BucketOrder order) {
  Layout buckets;
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

PackedLayout Pack(const Layout& layout) {
  PackedLayout packed;
  for (const std::vector<int>& bucket : layout) {
    packed.parameters.insert(packed.parameters.end(), bucket.begin(), bucket.end());
    packed.sizes.push_back(static_cast<int>(bucket.size()));
  }
  packed.parameters.push_back(static_cast<int>(layout.size()));
  return packed;
}

Layout Unpack(const PackedLayout& packed) {
  Layout layout;
  auto next = packed.parameters.begin();
  for (const int size : packed.sizes) {
    layout.emplace_back(next, next + size);
    next += size;
  }
  return layout;
}

BucketPlan::BucketPlan(std::vector<PlannedParameter> parameters, BucketLimits limits, bool may_change)
    : parameters_(std::move(parameters)), limits_(std::move(limits)), may_change_(may_change) {
  const Layout layout = Assign(NotDelayed(Registration(parameters_.size())), limits_.first, BucketOrder::kFirstItem);
  // Gradients become ready roughly from the last parameter to the first.
  SetLayout({layout.rbegin(), layout.rend()});
}

void BucketPlan::SetLayout(Layout layout) {
  layout_ = std::move(layout);
  ordered_ = static_cast<int>(layout_.size());
  std::vector<int> delayed;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].delayed) delayed.push_back(static_cast<int>(i));
  }
  if (!delayed.empty()) layout_.push_back(std::move(delayed));
}

std::vector<int> BucketPlan::NotDelayed(const std::vector<int>& order) const {
  std::vector<int> kept;
  for (const int i : order) {
    if (!parameters_[i].delayed) kept.push_back(i);
  }
  return kept;
}

Layout BucketPlan::Assign(const std::vector<int>& order, const std::vector<int64_t>& limits,
                          BucketOrder bucket_order) const {
  std::vector<BucketItem> items;
  for (const int i : order) items.push_back(parameters_[i].item);
  Layout layout = AssignBuckets(items, limits, bucket_order);
  for (std::vector<int>& bucket : layout) {
    for (int& position : bucket) position = order[position];
  }
  return layout;
}

void BucketPlan::AssumeReadyOrder() {
  if (may_change_ && ready_order_.empty()) ready_order_ = Registration(parameters_.size());
}

Layout BucketPlan::Next() const {
  if (may_change_) return Assign(NotDelayed(ready_order_), limits_.later, BucketOrder::kFilled);
  return {layout_.begin(), layout_.begin() + ordered_};
}

bool BucketPlan::Adopt(Layout layout) {
  const Layout before = layout_;
  SetLayout(std::move(layout));
  ready_order_.clear();
  may_change_ = false;
  return layout_ != before;
}

absl::StatusOr<Layout> BucketPlan::Numbers(const BucketLayout& names) const {
  std::map<std::string, int> numbers;
  std::vector<int> bucket_of(parameters_.size(), kNowhere);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].delayed) numbers[parameters_[i].name] = static_cast<int>(i);
  }
  Layout layout(names.size());
  for (size_t bucket = 0; bucket < names.size(); ++bucket) {
    if (names[bucket].empty()) return Misfit(bucket, "is empty");
    for (const std::string& name : names[bucket]) {
      const auto found = numbers.find(name);
      if (found == numbers.end()) return Misfit(bucket, "has ", name, ", which is not a parameter that buckets reduce");
      int& before = bucket_of[found->second];
      if (before != kNowhere) return Misfit(bucket, "has ", name, ", which bucket ", before, " has already");
      before = static_cast<int>(bucket);
      layout[bucket].push_back(found->second);
      if (layout[bucket].size() > 1) {
        LOCKSTEP_RETURN_IF_ERROR(
            CheckTogether(bucket, parameters_[layout[bucket].front()], parameters_[found->second]));
      }
    }
  }
  for (const auto& [name, number] : numbers) {
    if (bucket_of[number] == kNowhere)
      return absl::InvalidArgumentError(absl::StrCat("no bucket of the layout has parameter ", name));
  }
  return layout;
}

}  // namespace lockstep::ddp::internal
