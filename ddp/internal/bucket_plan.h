// Decides which parameters share a bucket and in which order buckets are reduced. Nothing here touches a tensor or
// another rank.

#ifndef LOCKSTEP_DDP_INTERNAL_BUCKET_PLAN_H_
#define LOCKSTEP_DDP_INTERNAL_BUCKET_PLAN_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/ddp/bucket_layout.h"

namespace lockstep::ddp::internal {

// The parameters of each bucket, by their numbers.
using Layout = std::vector<std::vector<int>>;

// The properties of a tensor that decide its bucket.
struct BucketItem {
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  bool sparse = false;  // it is alone in its bucket
};

enum class BucketOrder {
  kFirstItem,  // buckets sorted by their first item: for a layout that is made before any gradient was seen
  kFilled,     // buckets in the order in which they became full: for a layout made from the order in which gradients
               // became ready
};

// Puts items 0, 1, ... in that order into buckets, and returns the items of each bucket. PyTorch 2.11's rule: one
// bucket is open per dtype and device. An item goes into the open bucket of its kind. The bucket is closed when it
// holds limits[k] bytes or more, where k is the number of buckets of this kind that were closed before; the last limit
// serves all further ones. So a bucket may exceed its limit by less than one item.
Layout AssignBuckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& limits, BucketOrder order);

// A layout as PyTorch's ranks exchange it.
struct PackedLayout {
  std::vector<int> parameters;  // of all buckets, in order, followed by the number of buckets
  std::vector<int> sizes;       // of each bucket
};
PackedLayout Pack(const Layout& layout);
Layout Unpack(const PackedLayout& packed);

struct PlannedParameter {
  std::string name;
  BucketItem item;
  bool delayed = false;  // it shares one bucket with the other delayed parameters
};

// The limits of the first, second, ... bucket in bytes.
struct BucketLimits {
  std::vector<int64_t> first;  // for the first layout
  std::vector<int64_t> later;  // for the layout that replaces it
};

// The layout of a model's buckets, and what it may become.
//
// The first layout follows the order of registration. It is replaced at most once, by a layout that follows the order
// in which gradients became ready (Li et al., PyTorch Distributed, VLDB 2020): RecordReady() records that order in a
// backward, Next() is the layout that follows from it, and Adopt() makes the ranks' common choice the present layout.
//
//   for (int i : order_of_gradients) plan.RecordReady(i);
//   if (plan.ChangeIsDue() && plan.Adopt(rank_0s(plan.Next()))) build_buckets(plan.layout());
//
// Parameters are identified by their numbers in the constructor's vector.
class BucketPlan {
 public:
  // `may_change`: the first layout is to be replaced.
  BucketPlan(std::vector<PlannedParameter> parameters, BucketLimits limits, bool may_change);

  // The present layout. The bucket of delayed parameters, if there are any, is the last.
  const Layout& layout() const { return layout_; }

  // The buckets before the bucket of delayed parameters. They are reduced in order.
  int ordered() const { return ordered_; }

  // Returns whether the present layout is still to be replaced.
  bool may_change() const { return may_change_; }

  // The parameter's gradient is the next to become ready. Does nothing once the layout is final or an order of all
  // parameters is known.
  void RecordReady(int parameter) {
    if (may_change_ && ready_order_.size() < parameters_.size()) ready_order_.push_back(parameter);
  }

  // The order recorded so far does not count: backward was not completed.
  void ForgetReadyOrder() { ready_order_.clear(); }

  // For a backward of which this rank saw no order while other ranks did: the order of registration, unless one is
  // known. Rank 0 decides in the end.
  void AssumeReadyOrder();

  // Returns whether the ranks are to agree on the layout that replaces the present one.
  bool ChangeIsDue() const { return may_change_ && !ready_order_.empty(); }

  // The layout for the next backward, as far as this rank knows, without the bucket of delayed parameters. Empty before
  // an order is known, unless the present layout is final.
  Layout Next() const;

  // Makes `layout`, which has no bucket for delayed parameters, the present and final one. Returns whether it differs
  // from the layout before.
  bool Adopt(Layout layout);

  // `names` by number. InvalidArgument, naming bucket and parameter, if it does not fit: each parameter that is not
  // delayed must be in one bucket. Parameters that share a bucket must have one dtype and device, and dense gradients.
  absl::StatusOr<Layout> Numbers(const BucketLayout& names) const;

 private:
  std::vector<int> NotDelayed(const std::vector<int>& order) const;
  Layout Assign(const std::vector<int>& order, const std::vector<int64_t>& limits, BucketOrder bucket_order) const;
  void SetLayout(Layout layout);

  const std::vector<PlannedParameter> parameters_;
  const BucketLimits limits_;
  bool may_change_;
  Layout layout_;
  int ordered_ = 0;
  std::vector<int> ready_order_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BUCKET_PLAN_H_
