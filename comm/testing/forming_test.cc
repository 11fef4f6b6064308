#include "lockstep/comm/testing/forming.h"

#include <stdlib.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/comm/backend.h"

namespace lockstep::comm::testing {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Gt;
using ::testing::Le;

constexpr int kFew = 4, kMany = 32;
// One request for each 7 ranks would be more. From 32 ranks on rank 0 asks for the address of the watch's hub.
constexpr int64_t kMoreRequests = 3;

constexpr int64_t kForItself = 16;

FormingCost Least(const FormingCost& a, const FormingCost& b) {
  return {std::min(a.requests, b.requests), std::min(a.descriptors, b.descriptors),
          std::min(a.barrier_requests, b.barrier_requests), std::min(a.subgroup_requests, b.subgroup_requests)};
}

// The least of several groups: on a busy machine ranks wait for each other, and a rank that waits sends more requests.
absl::StatusOr<Forming> FormSeveral(int world_size) {
  absl::StatusOr<Forming> least = FormAGroup(world_size, "shm");
  for (int i = 0; least.ok() && i < 2; ++i) {
    const absl::StatusOr<Forming> next = FormAGroup(world_size, "shm");
    if (!next.ok()) return next;
    least->rank0 = Least(least->rank0, next->rank0);
    least->rank1 = Least(least->rank1, next->rank1);
    least->others = Least(least->others, next->others);
  }
  return least;
}

void ExpectTheSameRequests(const FormingCost& many, const FormingCost& few, const char* rank) {
  SCOPED_TRACE(rank);
  EXPECT_GT(few.requests, 0);
  EXPECT_GT(few.barrier_requests, 0);
  EXPECT_GT(few.subgroup_requests, 0);
  EXPECT_LE(many.requests, few.requests + kMoreRequests);
  EXPECT_LE(many.barrier_requests, few.barrier_requests + kMoreRequests);
  EXPECT_LE(many.subgroup_requests, few.subgroup_requests + kMoreRequests);
}

void ExpectTheSameForEachRank() {
  const absl::StatusOr<Forming> few = FormSeveral(kFew), many = FormSeveral(kMany);
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  ExpectTheSameRequests(many->rank0, few->rank0, "rank 0");
  ExpectTheSameRequests(many->rank1, few->rank1, "rank 1");
  ExpectTheSameRequests(many->others, few->others, "the other ranks");
  EXPECT_EQ(many->others.descriptors, few->others.descriptors);
  // At rank 0 the connections of the store. At rank 1 the connections of the watch, and before Linux 6.16 its handles
  // on processes.
  EXPECT_LE(many->rank0.descriptors, kMany + kForItself);
  EXPECT_THAT(many->rank1.descriptors, AnyOf(Le(kMany + kForItself), AllOf(Gt(2 * kMany), Le(2 * kMany + kForItself))));
}

TEST(FormAGroup, TakesTheSameRequestsAndDescriptorsOfEachRankWhateverTheWorldSize) { ExpectTheSameForEachRank(); }

// The backend shm, which `late` makes `kLate` after the other ranks.
constexpr absl::Duration kLate = absl::Milliseconds(600);
std::string ShmWithout(int late) { return absl::StrCat("shm_without_", late); }
[[maybe_unused]] const bool registered = [] {
  for (const int late : {0, 1}) {
    BackendInfo info;
    info.name = ShmWithout(late);
    info.devices = {c10::DeviceType::CPU};
    info.preference = -1;
    info.create = [late](const BackendContext& context) {
      if (context.rank == late) absl::SleepFor(kLate);
      return FindBackend("shm")->create(context);
    };
    RegisterBackend(std::move(info));
  }
  return true;
}();

// A wait for a key sends two more after 250 and after 750 ms. Each of the two groups has one.
TEST(FormAGroup, TakesFewMoreRequestsIfARankIsLateForTheSharedMemory) {
  constexpr int64_t kOfAWait = 6;
  const absl::StatusOr<Forming> at_once = FormAGroup(kFew, "shm");
  for (const int late : {0, 1}) {
    const absl::StatusOr<Forming> waiting = FormAGroup(kFew, ShmWithout(late));
    ASSERT_TRUE(at_once.ok() && waiting.ok()) << at_once.status() << waiting.status();
    EXPECT_GE(waiting->forming, kLate);
    EXPECT_LE(waiting->rank0.requests, at_once->rank0.requests + kOfAWait) << late;
    EXPECT_LE(waiting->others.requests, at_once->others.requests + kOfAWait) << late;
  }
}

// Long enough for pieces of waits to end.
TEST(FormAGroup, WritesNothingToStandardErrorWhileRanksWaitForALateOne) {
  for (const char* backend : {"gloo", "shm"}) {
    ::testing::internal::CaptureStderr();
    const absl::Status status = FormAGroup(8, backend, /*open_files=*/0, /*late=*/absl::Milliseconds(1500)).status();
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
  // At once each rank reads the addresses of all others.
  EXPECT_LE(lazily->median_requests, all_at_once->median_requests - 4 * 8);
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
