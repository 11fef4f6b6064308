#include <ATen/ATen.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/testing/backend_conformance.h"
#include "lockstep/comm/testing/init_ranks.h"

namespace lockstep::comm {
namespace testing {

INSTANTIATE_TEST_SUITE_P(Shm, BackendConformance, ::testing::Values(ConformanceCase{"shm"}));

}  // namespace testing

namespace {

using ::testing::HasSubstr;

InitOptions OverShm() {
  InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  return options;
}

TEST(Shm, SharedTensorsAreReducedInPlaceToTheSameBitsAsOrdinaryOnes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const auto results = testing::InitRanks(OverShm(), 3, [&](ProcessGroup& group) {
      const at::Tensor input = (at::arange(70001, at::kDouble) + group.rank() + 1).reciprocal().to(dtype);
      const auto shared = group.AllocateShared({70001}, dtype);
      EXPECT_TRUE(shared.ok()) << shared.status();
      if (!shared.ok()) return shared.status();
      shared->copy_(input);
      EXPECT_EQ(group.AllReduce(*shared, ReduceOp::kAvg), absl::OkStatus());
      const at::Tensor ordinary = input.clone();
      EXPECT_EQ(group.AllReduce(ordinary, ReduceOp::kAvg), absl::OkStatus());
      EXPECT_TRUE(at::equal(*shared, ordinary)) << dtype;
      // A part of a shared tensor is one too.
      const at::Tensor part = shared->narrow(0, 17, 40000);
      EXPECT_EQ(group.AllReduce(part, ReduceOp::kMax), absl::OkStatus());
      EXPECT_TRUE(at::equal(*shared, ordinary)) << "the maximum of equal numbers";
      return absl::OkStatus();
    });
    for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
  }
}

TEST(Shm, ASharedTensorOutlivesItsGroup) {
  at::Tensor kept;
  const auto results = testing::InitRanks(OverShm(), 1, [&](ProcessGroup& group) {
    kept = *group.AllocateShared({4, 5}, at::kLong);
    return absl::OkStatus();
  });
  EXPECT_EQ(results[0], absl::OkStatus());
  kept.fill_(7);
  EXPECT_EQ(kept.sum().item<int64_t>(), 140);
}

TEST(Shm, SizesAreCheckedWithoutDebug) {
  const auto results = testing::InitRanks(OverShm(), 2, [&](ProcessGroup& group) {
    const at::Tensor x = at::ones({group.rank() == 0 ? 1000000 : 999999});
    const absl::Status status = group.AllReduce(x);
    EXPECT_TRUE(at::equal(x, at::ones_like(x))) << "nothing was written";
    return status;
  });
  for (const absl::Status& result : results) {
    EXPECT_THAT(std::string(result.message()),
                HasSubstr("rank 0 called all_reduce #0 (sum) of 4000000 bytes of float32; rank 1 called all_reduce #0 "
                          "(sum) of 3999996 bytes of float32"));
  }
}

TEST(Shm, RefusesRanksOfAnotherHostByName) {
  BackendContext context;
  context.size = 2;
  context.ranks = {IdentityOfThisProcess(0), IdentityOfThisProcess(1)};
  const auto usable = FindBackend("shm")->usable;
  EXPECT_EQ(usable(context), absl::OkStatus());
  context.ranks[1].boot_id = "another";
  context.ranks[1].host = "b";
  EXPECT_THAT(std::string(usable(context).message()), HasSubstr("shm needs all ranks on one host, but rank 1 (host b"));
  context.ranks.clear();
  EXPECT_THAT(std::string(usable(context).message()), HasSubstr("every rank to be a Lockstep rank"));
}

}  // namespace
}  // namespace lockstep::comm
