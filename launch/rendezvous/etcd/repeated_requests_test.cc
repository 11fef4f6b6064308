#include "lockstep/launch/rendezvous/etcd/repeated_requests.h"

#include <limits>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep::launch::etcd {
namespace {

constexpr int64_t kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;

class RepeatedRequestsTest : public ::testing::Test {
 protected:
  Request read_ = Request("reading"), write_ = Request("writing");
  RepeatedRequests requests_{{&read_, &write_}, absl::Seconds(600), absl::Seconds(60), /*seed=*/1};
};

TEST_F(RepeatedRequestsTest, AreDueFromTheirFirstTry) {
  EXPECT_EQ(requests_.NextLook(kSecond), std::numeric_limits<int64_t>::max());
  requests_.Begin(&read_, kSecond);
  requests_.Fail(absl::UnavailableError("refused"), 2 * kSecond);
  EXPECT_FALSE(read_.in_flight);
  requests_.Begin(&read_, 3 * kSecond);
  EXPECT_EQ(requests_.WaitsSince(), kSecond);
  EXPECT_EQ(requests_.Overdue(601 * kSecond - 1), nullptr);
  EXPECT_EQ(requests_.Overdue(601 * kSecond), &read_);
}

TEST_F(RepeatedRequestsTest, AreRepeatedForLessLongAfterASuccess) {
  requests_.Begin(&read_, kSecond);
  requests_.Succeed(&read_, 2 * kSecond);
  EXPECT_EQ(requests_.WaitsSince(), std::numeric_limits<int64_t>::max());
  requests_.Begin(&write_, 3 * kSecond);
  EXPECT_EQ(requests_.Overdue(63 * kSecond - 1), nullptr);
  EXPECT_EQ(requests_.Overdue(63 * kSecond), &write_);
}

// Each pause is between half of a bound and the bound, which doubles up to 1 s, and is 50 ms again after 5 s of calm.
TEST_F(RepeatedRequestsTest, PauseLongerAfterEachError) {
  int64_t now = 100 * kSecond;
  for (const int64_t bound : {50, 100, 200, 400, 800, 1000, 1000}) {
    requests_.Begin(&read_, now);
    requests_.Fail(absl::UnavailableError("refused"), now);
    EXPECT_TRUE(requests_.Pauses(now + bound * kMillisecond / 2 - 1)) << bound;
    EXPECT_FALSE(requests_.Pauses(now + bound * kMillisecond)) << bound;
    EXPECT_LE(requests_.NextLook(now), now + bound * kMillisecond);
    now += kSecond;
  }
  now += 5 * kSecond;
  requests_.Fail(absl::UnavailableError("refused"), now);
  EXPECT_FALSE(requests_.Pauses(now + 50 * kMillisecond));
}

TEST_F(RepeatedRequestsTest, AServerIsSilentAfterASecondOrAnError) {
  EXPECT_FALSE(requests_.IsSilent(kSecond));
  requests_.Begin(&read_, kSecond);
  EXPECT_FALSE(requests_.IsSilent(2 * kSecond - 1));
  EXPECT_EQ(requests_.NextLook(kSecond), 2 * kSecond);
  EXPECT_TRUE(requests_.IsSilent(2 * kSecond));
  EXPECT_EQ(requests_.Why(), "there was no answer");
  requests_.Succeed(&read_, 2 * kSecond);
  EXPECT_FALSE(requests_.IsSilent(3 * kSecond));

  requests_.Begin(&read_, 3 * kSecond);
  requests_.Fail(absl::UnavailableError("refused"), 3 * kSecond + 1);
  EXPECT_TRUE(requests_.IsSilent(3 * kSecond + 1));
  EXPECT_EQ(requests_.Why(), "refused");
  requests_.Succeed(&read_, 4 * kSecond);
  requests_.Begin(&write_, 4 * kSecond);
  EXPECT_FALSE(requests_.IsSilent(4 * kSecond));
}

}  // namespace
}  // namespace lockstep::launch::etcd
