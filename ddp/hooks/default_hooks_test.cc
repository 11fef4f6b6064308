#include "lockstep/ddp/hooks/default_hooks.h"

#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/power_sgd.h"
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

// The hooks beside those of Python PyTorch 2.11 (testdata/make_golden.py), on two ranks.

at::Tensor Golden(const std::string& name) {
  static const nlohmann::json golden =
      nlohmann::json::parse(std::ifstream("ddp/hooks/testdata/golden.json"));  // read on the test's own thread
  return torch::tensor(golden.at(name).get<std::vector<double>>(), at::kDouble).to(at::kFloat);
}

// The Bucket of make_golden.py.
GradBucket Bucket(int rank, int step) {
  std::vector<at::Tensor> gradients;
  int k = 0;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{8, 9}, {6}, {7, 10}, {8, 9}}) {
    const at::Tensor gradient = at::zeros(shape);
    for (int64_t i = 0; i < gradient.numel(); ++i, ++k)
      gradient.data_ptr<float>()[i] = static_cast<float>(std::sin(0.7 * ((k + 1) * (k + 1) % 101) + rank + 2 * step));
    gradients.push_back(gradient);
  }
  return MakeBucket(gradients);
}

void ExpectSameBits(const std::string& name, CommunicationHook (*make)(ProcessGroup* group)) {
  const at::Tensor expected = Golden(name);
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         EXPECT_TRUE(Reduce(make(&group), Bucket(group.rank(), 0)).equal(expected)) << name;
                       }),
            absl::OkStatus());
}

TEST(Golden, DefaultHooksAreTheSameBits) {
  ExpectSameBits("all-reduce", AllReduce);
  ExpectSameBits("fp16", Fp16Compress);
  ExpectSameBits("bf16", Bf16Compress);
}

// Factors come from other orders of operations, so the last bits differ.
void ExpectClose(const std::string& name, PowerSgdOptions options) {
  const at::Tensor expected = Golden(name);
  options.start_power_sgd_iter = 2;
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const CommunicationHook hook = *PowerSgd(&group, options);
                         at::Tensor reduced;
                         for (int step = 0; step < 5; ++step) reduced = Reduce(hook, Bucket(group.rank(), step));
                         EXPECT_LT((reduced - expected).abs().max().item<double>(), 1e-5) << name;
                       }),
            absl::OkStatus());
}

TEST(Golden, PowerSgdGivesTheSameGradients) {
  PowerSgdOptions options;
  ExpectClose("rank 1", options);
  options.matrix_approximation_rank = 2;
  ExpectClose("rank 2", options);
  options.warm_start = false;
  options.random_seed = 5;
  ExpectClose("cold", options);
  options = {};
  options.use_error_feedback = false;
  options.orthogonalization_epsilon = 0.01;
  ExpectClose("no feedback", options);
}

}  // namespace
}  // namespace lockstep::ddp::hooks
