#include "lockstep/comm/testing/forming.h"

#include <stdlib.h>

#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"

namespace lockstep::comm::testing {
namespace {

using ::lockstep::testing::FewDescriptors;

constexpr int kFew = 4, kMany = 32;
// A wait in the store is cut into pieces, and on a busy machine there are more of them.
constexpr int64_t kMoreForWaiting = 16;

void ExpectTheSameForEachRank() {
  const absl::StatusOr<Forming> few = FormAGroup(kFew, "shm"), many = FormAGroup(kMany, "shm");
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  EXPECT_GT(few->others.requests, 0);
  EXPECT_LE(many->others.requests, few->others.requests + kMoreForWaiting);
  EXPECT_LE(many->rank0.requests, few->rank0.requests + kMoreForWaiting);
  EXPECT_EQ(many->others.descriptors, few->others.descriptors);
  // At rank 0, the others' connections to the store and to the watch, and the watch's handles on their processes.
  EXPECT_EQ(many->rank0.descriptors, few->rank0.descriptors + 3 * (kMany - kFew));
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

TEST(FormAGroup, TakesTheSameWithAJobSecret) {
  setenv("LOCKSTEP_JOB_SECRET", "the secret of this job", /*overwrite=*/1);
  ExpectTheSameForEachRank();
  unsetenv("LOCKSTEP_JOB_SECRET");
}

TEST(FormAGroup, RaisesTheSoftLimitOfOpenFilesIfItIsTooLowForTheWorld) {
  const FewDescriptors few(45);  // of which rank 0 has about 36, and needs 60
  EXPECT_EQ(FormAGroup(16, "shm").status(), absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::comm::testing
