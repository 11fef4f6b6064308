#include "lockstep/launch/job/stall_watch.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kWhy[] = "all_reduce #7 has lasted 30s: rank 1 (host a, pid 7) has not begun it";

int64_t At(int seconds) { return int64_t{seconds} * 1000000000; }

// Virtual time: the lines of `seconds` seconds, each with its second before it. `happens` comes first in each second.
std::vector<std::string> Lines(int seconds, const std::function<void(StallWatch*, int second)>& happens,
                               absl::Duration timeout = absl::InfiniteDuration()) {
  StallWatch watch(timeout);
  std::vector<std::string> lines;
  watch.OnGeneration(At(0));
  for (int second = 0; second < seconds; ++second) {
    happens(&watch, second);
    const std::string line = watch.TakeLine(At(second));
    if (!line.empty()) lines.push_back(absl::StrCat(second, " ", line));
    if (const auto rank = watch.TakeCulprit(At(second))) lines.push_back(absl::StrCat(second, " end ", *rank));
    EXPECT_GT(watch.next_look(), At(second));
  }
  return lines;
}

TEST(StallWatch, SaysNothingInARunThatMakesSteps) {
  for (const int pause : {1, 10, 30, 35}) {
    EXPECT_THAT(Lines(100000,
                      [&](StallWatch* watch, int second) {
                        if (second % pause == 0) watch->OnStep(At(second));
                      }),
                IsEmpty());
  }
}

TEST(StallWatch, SaysNothingOfRanksThatReportNothing) {
  EXPECT_THAT(Lines(100000, [](StallWatch*, int) {}), IsEmpty());
}

// Ranks speak of their calls after 30 to 34 s, and then every 10 s.
TEST(StallWatch, SaysWhoIsWaitedForAndThenEachTimeThatItHasLastedTwiceAsLong) {
  const auto stall = [](StallWatch* watch, int second) {
    if (second <= 10) watch->OnStep(At(second));
    if (second >= 43 && second % 10 == 3) watch->OnReport(kWhy, 1, At(second));
  };
  EXPECT_THAT(Lines(300, stall),
              ElementsAre(absl::StrCat("43 no step for 33s: ", kWhy), absl::StrCat("70 no step for 1m: ", kWhy),
                          absl::StrCat("130 no step for 2m: ", kWhy), absl::StrCat("250 no step for 4m: ", kWhy)));
}

TEST(StallWatch, SaysThatNobodyWaits) {
  const std::string nobody = "no rank says that it waits for another one";
  EXPECT_THAT(Lines(70,
                    [](StallWatch* watch, int second) {
                      if (second == 10) watch->OnStep(At(second));
                    }),
              ElementsAre(absl::StrCat("46 no step for 36s: ", nobody)));
  // A rank's report from before its last step, or from long ago, does not count.
  EXPECT_THAT(Lines(100,
                    [](StallWatch* watch, int second) {
                      if (second == 10) watch->OnReport(kWhy, 1, At(second));
                      if (second == 11) watch->OnStep(At(second));
                    }),
              ElementsAre(absl::StrCat("47 no step for 36s: ", nobody), absl::StrCat("77 no step for 1m6s: ", nobody)));
}

TEST(StallWatch, CountsFromTheBeginOfAGenerationWithoutSteps) {
  EXPECT_THAT(Lines(50,
                    [](StallWatch* watch, int second) {
                      if (second == 10) watch->OnGeneration(At(second));
                      if (second == 42) watch->OnReport(kWhy, 0, At(second));
                    }),
              ElementsAre(absl::StrCat("42 no step for 32s, since the generation began: ", kWhy)));
}

TEST(StallWatch, EndsTheRankThatTheOthersWaitForAfterTheTimeout) {
  const auto stall = [](StallWatch* watch, int second) {
    if (second <= 10) watch->OnStep(At(second));
    if (second >= 43 && second % 10 == 3) watch->OnReport(kWhy, second < 100 ? 1 : 2, At(second));
  };
  EXPECT_THAT(Lines(120, stall, absl::Seconds(60)),
              ElementsAre(absl::StrCat("43 no step for 33s: ", kWhy), absl::StrCat("70 no step for 1m: ", kWhy),
                          "70 end 1", "103 end 2"));
  // Nobody is ended for calls that all ranks have begun.
  EXPECT_THAT(
      Lines(
          120, [](StallWatch* watch, int second) { watch->OnReport("every rank has begun it", -1, At(second)); },
          absl::Seconds(40)),
      ElementsAre("30 no step for 30s, since the generation began: every rank has begun it",
                  "60 no step for 1m, since the generation began: every rank has begun it"));
}

}  // namespace
}  // namespace lockstep::launch
