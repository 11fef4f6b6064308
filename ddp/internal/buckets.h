#ifndef LOCKSTEP_DDP_INTERNAL_BUCKETS_H_
#define LOCKSTEP_DDP_INTERNAL_BUCKETS_H_

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace lockstep::ddp::internal {

// What decides the bucket of a tensor.
struct BucketItem {
  int64_t bytes = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  bool sparse = false;  // it gets a bucket of its own
};

enum class BucketOrder {
  kFirstItem,  // buckets sorted by their first item: for a layout made before any gradient was seen
  kFilled,     // buckets in the order in which they became full: for a layout made from the order in which gradients
               // became ready
};

// Puts items 0, 1, ... in that order into buckets, and returns the items of each bucket. PyTorch 2.11's rule: one
// bucket is open per dtype and device; an item goes into its kind's, and when that holds limits[k] bytes or more it is
// closed, k being the number of buckets of this kind closed before (the last limit serves all further ones). So a
// bucket may exceed its limit by less than one item.
std::vector<std::vector<int>> AssignBuckets(const std::vector<BucketItem>& items, const std::vector<int64_t>& limits,
                                            BucketOrder order);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BUCKETS_H_
