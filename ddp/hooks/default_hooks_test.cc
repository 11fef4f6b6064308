#include "lockstep/ddp/hooks/default_hooks.h"

#include <torch/torch.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

std::vector<at::Tensor> Gradients(int rank) { return {RandomGradient({4, 3}, rank, 0), RandomGradient({5}, rank, 1)}; }

// Sums in rank order, as the ranks of the test do.
at::Tensor Sum(int ranks, const std::function<at::Tensor(at::Tensor gradients)>& prepare) {
  at::Tensor sum = prepare(MakeBucket(Gradients(0)).buffer);
  for (int rank = 1; rank < ranks; ++rank) sum.add_(prepare(MakeBucket(Gradients(rank)).buffer));
  return sum;
}

// Every rank must get `expected`, to the bit, in the bucket itself.
void ExpectReduces(int ranks, const std::function<CommunicationHook(ProcessGroup*)>& make, const at::Tensor& expected) {
  EXPECT_EQ(RunRanksOk(ranks,
                       [&](ProcessGroup& group) {
                         GradBucket bucket = MakeBucket(Gradients(group.rank()));
                         const at::Tensor reduced = Reduce(make(&group), bucket);
                         EXPECT_TRUE(reduced.is_same(bucket.buffer));
                         EXPECT_TRUE(reduced.equal(expected)) << reduced - expected;
                       }),
            absl::OkStatus());
}

TEST(AllReduce, DividesThenSums) {
  for (const int ranks : {1, 2, 3}) {
    ExpectReduces(ranks, AllReduce, Sum(ranks, [&](at::Tensor g) { return g / ranks; }));
  }
}

TEST(Fp16Compress, CastsDividesSumsAndCastsBack) {
  const auto expected = Sum(3, [](at::Tensor g) { return g.to(at::kHalf) / 3; }).to(at::kFloat);
  ExpectReduces(3, Fp16Compress, expected);
  EXPECT_FALSE(expected.equal(Sum(3, [](at::Tensor g) { return g / 3; })));
}

TEST(Bf16Compress, CastsDividesSumsAndCastsBack) {
  ExpectReduces(3, Bf16Compress, Sum(3, [](at::Tensor g) { return g.to(at::kBFloat16) / 3; }).to(at::kFloat));
}

TEST(CompressWrapper, AroundAllReduceIsTheCompressHook) {
  ExpectReduces(
      3, [](ProcessGroup* group) { return Fp16CompressWrapper(AllReduce(group)); },
      Sum(3, [](at::Tensor g) { return g.to(at::kHalf) / 3; }).to(at::kFloat));
  ExpectReduces(
      3, [](ProcessGroup* group) { return Bf16CompressWrapper(AllReduce(group)); },
      Sum(3, [](at::Tensor g) { return g.to(at::kBFloat16) / 3; }).to(at::kFloat));
}

TEST(CompressWrapper, GivesTheHookEachGradientInHalfPrecision) {
  const std::vector<at::Tensor> gradients = Gradients(0);
  const CommunicationHook hook = Fp16CompressWrapper([&](GradBucket& bucket) {
    EXPECT_EQ(bucket.buffer.scalar_type(), at::kHalf);
    EXPECT_THAT(bucket.names, ::testing::ElementsAre("p0", "p1"));
    EXPECT_EQ(bucket.gradients.size(), 2);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(bucket.gradients[i].equal(gradients[i].to(at::kHalf)));
      bucket.gradients[i].fill_(static_cast<double>(i + 1));  // parts of the buffer
    }
    return Future(bucket.buffer);
  });
  EXPECT_TRUE(Reduce(hook, MakeBucket(gradients)).equal(at::cat({at::full({12}, 1.0), at::full({5}, 2.0)})));
}

TEST(CompressWrapper, KeepsTheBucketUntilTheHooksFutureIsThere) {
  const CommunicationHook hook = Bf16CompressWrapper([](GradBucket& bucket) {
    return Future([&bucket]() -> absl::StatusOr<at::Tensor> { return bucket.buffer * bucket.index; });
  });
  GradBucket bucket = MakeBucket({at::full({3}, 2.0f)});
  bucket.index = 3;
  EXPECT_TRUE(Reduce(hook, bucket).equal(at::full({3}, 6.0f)));
}

TEST(Compress, RefusesComplexGradients) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         for (const CommunicationHook& hook : {Fp16Compress(&group), Bf16CompressWrapper(Noop())}) {
                           GradBucket bucket = MakeBucket({at::zeros({2}, at::kComplexFloat)});
                           const absl::Status status = hook(bucket).Wait().status();
                           EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
                           EXPECT_THAT(std::string(status.message()), HasSubstr("bucket 0 holds ComplexFloat"));
                         }
                       }),
            absl::OkStatus());
}

TEST(Noop, LeavesEveryRankItsOwnGradients) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         const at::Tensor own = MakeBucket(Gradients(group.rank())).buffer;
                         EXPECT_TRUE(Reduce(Noop(), MakeBucket(Gradients(group.rank()))).equal(own));
                       }),
            absl::OkStatus());
}

TEST(Hooks, PassAnErrorOfTheAllReduceOn) {
  const std::vector<absl::Status> results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) return absl::InternalError("rank 1 is done");
    GradBucket bucket = MakeBucket(Gradients(0));
    return Fp16CompressWrapper(AllReduce(&group))(bucket).Wait().status();
  });
  EXPECT_THAT(std::string(results[0].message()), HasSubstr("rank 1 is done"));
}

}  // namespace
}  // namespace lockstep::ddp::hooks
