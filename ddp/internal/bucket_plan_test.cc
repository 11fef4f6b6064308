#include "lockstep/ddp/internal/bucket_plan.h"

#include <limits>

#include "absl/status/status.h"
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

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Parameters "p0", "p1", ... of 100 bytes.
std::vector<PlannedParameter> Parameters(int count) {
  std::vector<PlannedParameter> parameters;
  for (int i = 0; i < count; ++i) parameters.push_back({"p" + std::to_string(i), {100}});
  return parameters;
}

TEST(PackedLayout, IsTheParametersAndTheNumberOfBucketsThenTheSizes) {
  const Layout layout = {{3, 1}, {0}, {2, 4}};
  const PackedLayout packed = Pack(layout);
  EXPECT_EQ(packed.parameters, (std::vector<int>{3, 1, 0, 2, 4, 3}));
  EXPECT_EQ(packed.sizes, (std::vector<int>{2, 1, 2}));
  EXPECT_EQ(Unpack(packed), layout);
  EXPECT_TRUE(Unpack(Pack({})).empty());
}

TEST(BucketPlan, FirstReducesTheLastParametersFirst) {
  EXPECT_EQ(BucketPlan(Parameters(5), {{200}, {200}}, true).layout(), (Layout{{4}, {2, 3}, {0, 1}}));
  EXPECT_EQ(BucketPlan(Parameters(3), {{kNoLimit}, {100}}, true).layout(), (Layout{{0, 1, 2}}));
}

TEST(BucketPlan, IsReplacedInTheOrderInWhichGradientsBecameReady) {
  BucketPlan plan(Parameters(4), {{kNoLimit}, {100, 200}}, true);
  EXPECT_FALSE(plan.ChangeIsDue());
  EXPECT_TRUE(plan.Next().empty());
  for (const int i : {3, 1, 2, 0}) plan.RecordReady(i);
  ASSERT_TRUE(plan.ChangeIsDue());
  EXPECT_EQ(plan.Next(), (Layout{{3}, {1, 2}, {0}}));
  EXPECT_EQ(plan.layout(), (Layout{{0, 1, 2, 3}}));
  EXPECT_TRUE(plan.Adopt({{3, 1}, {2, 0}}));  // another rank's
  EXPECT_EQ(plan.layout(), (Layout{{3, 1}, {2, 0}}));
  EXPECT_FALSE(plan.may_change());
  EXPECT_EQ(plan.Next(), plan.layout());
}

TEST(BucketPlan, IsReplacedOnce) {
  BucketPlan plan(Parameters(2), {{kNoLimit}, {100}}, true);
  EXPECT_FALSE(plan.Adopt({{0, 1}}));  // as it was
  for (const int i : {1, 0}) plan.RecordReady(i);
  plan.AssumeReadyOrder();
  EXPECT_FALSE(plan.ChangeIsDue());
  EXPECT_EQ(plan.Next(), (Layout{{0, 1}}));
}

TEST(BucketPlan, ThatMayNotChangeRecordsNoOrder) {
  BucketPlan plan(Parameters(2), {{kNoLimit}, {100}}, false);
  for (const int i : {1, 0}) plan.RecordReady(i);
  plan.AssumeReadyOrder();
  EXPECT_FALSE(plan.ChangeIsDue());
  EXPECT_EQ(plan.Next(), (Layout{{0, 1}}));
}

// Several backward passes may follow one forward.
TEST(BucketPlan, TakesTheOrderOfTheFirstBackward) {
  BucketPlan plan(Parameters(3), {{kNoLimit}, {100}}, true);
  for (const int i : {2, 0, 1, 0, 1, 2, 2}) plan.RecordReady(i);
  EXPECT_EQ(plan.Next(), (Layout{{2}, {0}, {1}}));
}

TEST(BucketPlan, ForgetsAnOrderAndMayAssumeThatOfRegistration) {
  BucketPlan plan(Parameters(3), {{kNoLimit}, {100}}, true);
  plan.RecordReady(2);
  plan.ForgetReadyOrder();
  EXPECT_FALSE(plan.ChangeIsDue());
  plan.AssumeReadyOrder();
  EXPECT_EQ(plan.Next(), (Layout{{0}, {1}, {2}}));
  plan.ForgetReadyOrder();
  for (const int i : {1, 2, 0}) plan.RecordReady(i);
  plan.AssumeReadyOrder();
  EXPECT_EQ(plan.Next(), (Layout{{1}, {2}, {0}}));
}

TEST(BucketPlan, KeepsDelayedParametersInTheLastBucket) {
  std::vector<PlannedParameter> parameters = Parameters(4);
  parameters[1].delayed = parameters[3].delayed = true;
  BucketPlan plan(parameters, {{100}, {100}}, true);
  EXPECT_EQ(plan.layout(), (Layout{{2}, {0}, {1, 3}}));
  EXPECT_EQ(plan.ordered(), 2);
  for (const int i : {3, 0, 1, 2}) plan.RecordReady(i);
  EXPECT_EQ(plan.Next(), (Layout{{0}, {2}}));
  EXPECT_TRUE(plan.Adopt(plan.Next()));
  EXPECT_EQ(plan.layout(), (Layout{{0}, {2}, {1, 3}}));
  EXPECT_EQ(plan.ordered(), 2);
  EXPECT_EQ(plan.Next(), (Layout{{0}, {2}}));
}

TEST(BucketPlan, NumbersALayoutOfNames) {
  std::vector<PlannedParameter> parameters = Parameters(4);
  parameters[2].item.sparse = true;
  parameters[3].delayed = true;
  const BucketPlan plan(parameters, {{100}, {100}}, true);
  const auto numbers = plan.Numbers({{"p1", "p0"}, {"p2"}});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_EQ(*numbers, (Layout{{1, 0}, {2}}));
}

TEST(BucketPlan, NamesWhatDoesNotFitALayout) {
  std::vector<PlannedParameter> parameters = Parameters(5);
  parameters[2].item.sparse = true;
  parameters[3].item.dtype = c10::ScalarType::Double;
  parameters[4].delayed = true;
  const BucketPlan plan(parameters, {{100}, {100}}, true);
  const auto refused = [&plan](const BucketLayout& layout, const std::string& message) {
    const auto numbers = plan.Numbers(layout);
    EXPECT_EQ(numbers.status(), absl::InvalidArgumentError(message));
  };
  refused({{"p0"}, {}}, "bucket 1 of the layout is empty");
  refused({{"p0", "q"}}, "bucket 0 of the layout has q, which is not a parameter that buckets reduce");
  refused({{"p0"}, {"p4"}}, "bucket 1 of the layout has p4, which is not a parameter that buckets reduce");
  refused({{"p0"}, {"p1", "p0"}}, "bucket 1 of the layout has p0, which bucket 0 has already");
  refused({{"p0", "p2"}}, "bucket 0 of the layout has p2, whose gradient is sparse, and others: expected it alone");
  refused({{"p0", "p3"}},
          "bucket 0 of the layout has p0, Float on cpu, and p3, Double on cpu: expected one dtype and device");
  refused({{"p0"}, {"p2"}, {"p3"}}, "no bucket of the layout has parameter p1");
}

}  // namespace
}  // namespace lockstep::ddp::internal
