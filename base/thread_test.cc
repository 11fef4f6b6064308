#include "lockstep/base/thread.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/thread_budget.h"

namespace lockstep {
namespace {

using ::lockstep::testing::ThreadBudget;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StartThread, RunsTheFunction) {
  std::atomic<bool> ran{false};
  absl::StatusOr<std::thread> thread = StartThread("a thread", [&] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(StartThread, AThreadThatTheSystemRefusesIsAStatusWithTheLimit) {
  const ThreadBudget none(0);
  const absl::Status status = StartThread("the watch's thread", [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("cannot start the watch's thread: Resource temporarily unavailable (the soft limit of a "
                         "user's threads is "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("RLIMIT_NPROC, ulimit -u"));
}

TEST(StartThread, AsManyAsAskedForAreTried) {
  {
    const ThreadBudget three(3);
    EXPECT_EQ(CheckThreadsStart("Gloo's threads", 3), absl::OkStatus());
  }
  const ThreadBudget three(3);
  EXPECT_THAT(std::string(CheckThreadsStart("Gloo's threads", 4).message()),
              StartsWith("cannot start Gloo's threads: "));
}

}  // namespace
}  // namespace lockstep
