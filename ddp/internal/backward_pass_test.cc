#include "lockstep/ddp/internal/backward_pass.h"

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

constexpr int kNone = BackwardPass::kNone;

// Parameters a, b, c, d in buckets {c, b}, {a}, and the delayed {d}.
BackwardPass Pass() {
  BackwardPass pass(1, {"a", "b", "c", "d"});
  pass.SetBuckets({{2, 1}, {0}, {3}}, 2);
  pass.Begin(/*backward=*/0);
  return pass;
}

TEST(BackwardPass, StartsFullBucketsInOrder) {
  BackwardPass pass = Pass();
  EXPECT_TRUE(pass.MarkReady(0).ok());
  EXPECT_TRUE(pass.full(1));
  EXPECT_EQ(pass.NextToStart(), kNone);  // the bucket before it is not full
  EXPECT_TRUE(pass.MarkReady(1).ok());
  EXPECT_EQ(pass.NextToStart(), kNone);
  EXPECT_TRUE(pass.MarkReady(2).ok());
  EXPECT_EQ(pass.NextToStart(), 0);
  EXPECT_FALSE(pass.started(0));
  pass.MarkStarted(0);
  EXPECT_TRUE(pass.started(0));
  EXPECT_EQ(pass.NextToStart(), 1);
  pass.MarkStarted(1);
  EXPECT_EQ(pass.NextToStart(), kNone);  // the delayed bucket is not in order
  EXPECT_EQ(pass.next_start(), 2);
}

TEST(BackwardPass, StartsTheDelayedBucketWheneverItIsToldTo) {
  BackwardPass pass = Pass();
  EXPECT_EQ(pass.DelayedToStart(), 2);
  pass.MarkStarted(2);
  EXPECT_EQ(pass.DelayedToStart(), kNone);
  EXPECT_TRUE(pass.started(2));
  EXPECT_FALSE(pass.started(0));
  EXPECT_EQ(pass.next_start(), 0);
}

TEST(BackwardPass, HasADelayedBucketOnlyIfThereIsOne) {
  BackwardPass pass(0, {"a", "b"});
  pass.SetBuckets({{0}, {1}}, 2);
  EXPECT_EQ(pass.DelayedToStart(), kNone);
}

TEST(BackwardPass, DeliversInOrder) {
  BackwardPass pass = Pass();
  EXPECT_EQ(pass.next_delivery(), 0);
  pass.MarkDelivered();
  EXPECT_EQ(pass.next_delivery(), 1);
  pass.End();
  EXPECT_EQ(pass.next_delivery(), 0);
}

TEST(BackwardPass, NamesAParameterThatIsReadyTwice) {
  BackwardPass pass = Pass();
  EXPECT_TRUE(pass.MarkReady(1).ok());
  const absl::Status second = pass.MarkReady(1);
  EXPECT_EQ(second, absl::FailedPreconditionError("rank 1: parameter b got its gradient twice in one backward: "
                                                  "recomputation needs Options::static_graph"));
  EXPECT_FALSE(pass.full(0));  // the second time does not count
}

TEST(BackwardPass, NamesADelayedParameterThatComesTooLate) {
  BackwardPass pass = Pass();
  pass.MarkStarted(2);
  EXPECT_EQ(pass.MarkReady(3),
            absl::FailedPreconditionError(
                "rank 1: parameter d got its gradient after the parameter that starts its all_reduce"));
  EXPECT_EQ(pass.NotBefore(3, 0),
            absl::FailedPreconditionError("rank 1: parameter d had no gradient when the gradient of a, "
                                          "which starts its all_reduce, was computed"));
}

TEST(BackwardPass, NamesParametersWithoutAGradient) {
  BackwardPass pass = Pass();
  EXPECT_TRUE(pass.MarkReady(1).ok());
  EXPECT_TRUE(pass.MarkReady(3).ok());
  EXPECT_EQ(pass.NotReady(), (std::vector<int>{0, 2}));
  EXPECT_EQ(pass.NoGradient(),
            absl::FailedPreconditionError(
                "rank 1: 2 of 4 parameters got no gradient in the last backward, so it was not averaged: a, c; each "
                "parameter that requires gradients must take part in the loss, or Options::find_unused_parameters be "
                "set"));
}

TEST(BackwardPass, KeepsTheFirstErrorUntilItIsTaken) {
  BackwardPass pass = Pass();
  EXPECT_FALSE(pass.failed());
  pass.Fail(absl::OkStatus());
  EXPECT_FALSE(pass.failed());
  pass.Fail(absl::AbortedError("first"));
  pass.Fail(absl::AbortedError("second"));
  pass.End();
  EXPECT_TRUE(pass.failed());
  EXPECT_EQ(pass.TakeError(), absl::AbortedError("first"));
  EXPECT_EQ(pass.TakeError(), absl::OkStatus());
}

TEST(BackwardPass, EndsAsIfItHadNotBegun) {
  BackwardPass pass = Pass();
  for (const int i : {0, 1, 2, 3}) EXPECT_TRUE(pass.MarkReady(i).ok());
  for (const int bucket : {0, 1, 2}) pass.MarkStarted(bucket);
  pass.End();
  EXPECT_FALSE(pass.active());
  EXPECT_EQ(pass.NotReady().size(), 4);
  EXPECT_FALSE(pass.full(1));
  EXPECT_EQ(pass.next_start(), 0);
  EXPECT_EQ(pass.DelayedToStart(), 2);
  pass.Begin(/*backward=*/0);
  EXPECT_TRUE(pass.active());
  EXPECT_TRUE(pass.MarkReady(0).ok());
}

TEST(BackwardPass, KnowsTheBucketsThatReplaceOthers) {
  BackwardPass pass = Pass();
  pass.End();
  pass.SetBuckets({{0, 1, 2, 3}}, 1);
  pass.Begin(/*backward=*/0);
  EXPECT_EQ(pass.bucket_of(2), 0);
  for (const int i : {3, 2, 1}) EXPECT_TRUE(pass.MarkReady(i).ok());
  EXPECT_EQ(pass.NextToStart(), kNone);
  EXPECT_TRUE(pass.MarkReady(0).ok());
  EXPECT_EQ(pass.NextToStart(), 0);
}

}  // namespace
}  // namespace lockstep::ddp::internal
