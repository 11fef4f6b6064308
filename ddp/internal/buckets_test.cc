#include "lockstep/ddp/internal/buckets.h"

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

using Buckets = std::vector<std::vector<int>>;

std::vector<BucketItem> Floats(const std::vector<int64_t>& bytes) {
  std::vector<BucketItem> items;
  for (const int64_t b : bytes) items.push_back({b});
  return items;
}

// Expected layouts: what torch.distributed._compute_bucket_assignment_by_size of PyTorch 2.11 gives for tensors of
// these sizes.
TEST(AssignBuckets, ClosesABucketOnceItReachesItsLimit) {
  EXPECT_EQ(AssignBuckets(Floats({400, 400, 400, 400, 800}), {800}, BucketOrder::kFirstItem),
            (Buckets{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(AssignBuckets(Floats({300, 600, 100}), {800}, BucketOrder::kFirstItem), (Buckets{{0, 1}, {2}}));
}

TEST(AssignBuckets, UsesTheLimitsInTurnAndThenTheLast) {
  EXPECT_EQ(AssignBuckets(Floats({200, 200, 200, 200, 200, 200, 200}), {200, 400}, BucketOrder::kFirstItem),
            (Buckets{{0}, {1, 2}, {3, 4}, {5, 6}}));
}

TEST(AssignBuckets, KeepsDtypesAndDevicesApart) {
  std::vector<BucketItem> items = Floats({400, 400, 400, 400});
  items[1].dtype = items[3].dtype = c10::ScalarType::Double;
  EXPECT_EQ(AssignBuckets(items, {1000}, BucketOrder::kFirstItem), (Buckets{{0, 2}, {1, 3}}));
  items[2].device = c10::Device(c10::DeviceType::CUDA, 1);
  EXPECT_EQ(AssignBuckets(items, {1000}, BucketOrder::kFirstItem), (Buckets{{0}, {1, 3}, {2}}));
}

TEST(AssignBuckets, KeepsTheOrderOfFillingForARebuild) {
  std::vector<BucketItem> items = Floats({100, 400, 400});
  items[0].dtype = c10::ScalarType::Double;
  EXPECT_EQ(AssignBuckets(items, {800}, BucketOrder::kFilled), (Buckets{{1, 2}, {0}}));
  EXPECT_EQ(AssignBuckets(items, {800}, BucketOrder::kFirstItem), (Buckets{{0}, {1, 2}}));
}

TEST(AssignBuckets, OfNothingIsNothing) { EXPECT_TRUE(AssignBuckets({}, {1}, BucketOrder::kFirstItem).empty()); }

}  // namespace
}  // namespace lockstep::ddp::internal
