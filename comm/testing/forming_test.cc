#include "lockstep/comm/testing/forming.h"

#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/testing/few_descriptors.h"

namespace lockstep::comm::testing {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Gt;
using ::testing::Le;

constexpr int kFew = 4, kMany = 32;
// A wait in the store is cut into pieces, and on a busy machine there are more of them.
constexpr int64_t kMoreForWaiting = 16;

constexpr int64_t kForItself = 16;

void ExpectTheSameForEachRank() {
  const absl::StatusOr<Forming> few = FormAGroup(kFew, "shm"), many = FormAGroup(kMany, "shm");
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  EXPECT_GT(few->others.requests, 0);
  EXPECT_LE(many->others.requests, few->others.requests + kMoreForWaiting);
  EXPECT_LE(many->rank0.requests, few->rank0.requests + kMoreForWaiting);
  EXPECT_LE(many->others.barrier_requests, few->others.barrier_requests + kMoreForWaiting);
  EXPECT_LE(many->rank0.barrier_requests, few->rank0.barrier_requests + kMoreForWaiting);
  EXPECT_LE(many->others.subgroup_requests, few->others.subgroup_requests + kMoreForWaiting);
  EXPECT_LE(many->rank0.subgroup_requests, few->rank0.subgroup_requests + kMoreForWaiting);
  EXPECT_EQ(many->others.descriptors, few->others.descriptors);
  // At rank 0 the connections of the store. At rank 1 the connections of the watch, and before Linux 6.16 its handles on
  // processes.
  EXPECT_LE(many->rank0.descriptors, kMany + kForItself);
  EXPECT_THAT(many->rank1.descriptors, AnyOf(Le(kMany + kForItself), AllOf(Gt(2 * kMany), Le(2 * kMany + kForItself))));
}

TEST(FormAGroup, TakesTheSameRequestsAndDescriptorsOfEachRankWhateverTheWorldSize) { ExpectTheSameForEachRank(); }

TEST(FormAGroup, WritesNothingToStandardError) {
  for (const char* backend : {"gloo", "shm"}) {
    ::testing::internal::CaptureStderr();
    const absl::Status status = FormAGroup(8, backend).status();
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << backend;
    EXPECT_EQ(status, absl::OkStatus()) << backend;
  }
}

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
TEST(FormAGroup, ConnectsRanksOverGlooWhenTheyFirstExchangeSomethingIfThatIsAskedFor) {
  const absl::StatusOr<Forming> all_at_once = FormAGroup(12, "gloo");
  setenv("TORCH_GLOO_LAZY_INIT", "1", /*overwrite=*/1);
  const absl::StatusOr<Forming> lazily = FormAGroup(12, "gloo");
  unsetenv("TORCH_GLOO_LAZY_INIT");
  ASSERT_TRUE(all_at_once.ok() && lazily.ok()) << all_at_once.status() << lazily.status();
  EXPECT_LE(lazily->others.descriptors, all_at_once->others.descriptors - 8);
}
#endif

TEST(FormAGroup, TakesTheSameWithAJobSecret) {
  setenv("LOCKSTEP_JOB_SECRET", "the secret of this job", /*overwrite=*/1);
  ExpectTheSameForEachRank();
  unsetenv("LOCKSTEP_JOB_SECRET");
}

TEST(FormAGroup, RaisesTheSoftLimitOfOpenFilesIfItIsTooLowForTheWorld) {
  const FewDescriptors few(45);  // of which rank 0 has about 36, and needs 80 with the sub-group's
  EXPECT_EQ(FormAGroup(16, "shm").status(), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::comm::testing
