#include "lockstep/comm/watch/internal/stall_clock.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Virtual time: `call(second)` is the last call begun, and `ended(second)` the last one ended. The seconds of the
// words.
template <typename Call, typename Ended>
std::vector<int> SecondsOfWords(int until, Call call, Ended ended) {
  StallClock clock(seconds(30));
  std::vector<int> words;
  const StallClock::Clock::time_point start;
  for (auto now = start; now <= start + seconds(until); now += clock.interval()) {
    const int second = static_cast<int>(std::chrono::duration_cast<seconds>(now - start).count());
    if (clock.Look(call(second), ended(second), now)) words.push_back(second);
  }
  return words;
}

TEST(StallClock, SaysNothingWhileCallsBeginAndEnd) {
  const auto each_second = [](int second) { return second; };
  EXPECT_THAT(SecondsOfWords(10000, each_second, [](int second) { return second - 1; }), IsEmpty());
  EXPECT_THAT(SecondsOfWords(
                  10000, [](int second) { return second / 29; }, [](int second) { return second / 29 - 1; }),
              IsEmpty());
}

TEST(StallClock, SaysNothingBetweenCalls) {
  EXPECT_THAT(SecondsOfWords(
                  10000, [](int) { return 7; }, [](int) { return 7; }),
              IsEmpty());
  EXPECT_THAT(SecondsOfWords(
                  10000, [](int) { return -1; }, [](int) { return -1; }),
              IsEmpty());
}

TEST(StallClock, SaysSoAfterThirtySecondsAndThenEveryTen) {
  EXPECT_THAT(SecondsOfWords(
                  65, [](int) { return 7; }, [](int) { return 6; }),
              ElementsAre(30, 40, 50, 60));
  // Another call counts anew.
  EXPECT_THAT(SecondsOfWords(
                  80, [](int second) { return second < 36 ? 7 : 8; }, [](int) { return 6; }),
              ElementsAre(30, 66, 76));
}

TEST(StallClock, MayAskSoonerOnce) {
  const auto at = [](int second) { return StallClock::Clock::time_point() + seconds(second); };
  StallClock clock(seconds(30), seconds(6));
  std::vector<int> words;
  for (int second = 0; second <= 45; ++second) {
    if (clock.Look(7, 6, at(second))) words.push_back(second);
  }
  EXPECT_THAT(words, ElementsAre(6, 30, 40));
}

TEST(StallClock, SaysForHowLongTheCallLasts) {
  StallClock clock(seconds(30));
  const StallClock::Clock::time_point start;
  EXPECT_EQ(clock.Look(3, 2, start), std::nullopt);
  EXPECT_EQ(clock.Look(3, 2, start + seconds(31)), seconds(31));
  EXPECT_EQ(clock.interval(), seconds(2));
  EXPECT_EQ(StallClock(milliseconds(300)).interval(), milliseconds(20));
}

}  // namespace
}  // namespace lockstep::comm::internal
