#include "lockstep/comm/rendezvous/waiting_notice.h"

#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm {
namespace {

using ::testing::MatchesRegex;

TEST(DescribeRanks, ShortensRunsAndSaysHowManyOfAll) {
  EXPECT_EQ(DescribeRanks({1}, 2), "rank 1 (1 of 2)");
  EXPECT_EQ(DescribeRanks({1, 2}, 4), "ranks 1, 2 (2 of 4)");
  std::vector<int> ranks(256 - 38);
  std::iota(ranks.begin(), ranks.end(), 38);
  ranks[0] = 3;
  ranks[1] = 17;
  EXPECT_EQ(DescribeRanks(ranks, 256), "ranks 3, 17, 40-255 (218 of 256)");
}

TEST(DescribeRanks, NamesTenRangesAndCountsTheRest) {
  std::vector<int> odd;
  for (int rank = 1; rank < 256; rank += 2) odd.push_back(rank);
  EXPECT_EQ(DescribeRanks(odd, 256), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 118 more (128 of 256)");
}

TEST(WaitingNotice, SpeaksAfterTheIntervalAndThenMoreAndMoreSeldom) {
  std::vector<std::string> lines;
  const absl::Time start = absl::Now();
  const auto write = [&](const std::string& line) { lines.push_back(line); };
  WaitingNotice notice({"rank 0", absl::Seconds(300), absl::Milliseconds(20), write});
  std::vector<double> intervals;
  while (lines.size() < 4) {
    const size_t before = lines.size();
    notice.Tick([] { return "rank 1 (1 of 2)"; }, ": is it started?");
    if (lines.size() > before) intervals.push_back(absl::FDivDuration(absl::Now() - start, absl::Milliseconds(20)));
    absl::SleepFor(absl::Milliseconds(1));
  }
  const std::vector<double> due = {1, 3, 6, 12};
  for (size_t i = 0; i < due.size(); ++i) EXPECT_GE(intervals[i], due[i]);
  EXPECT_THAT(lines[0],
              MatchesRegex("rank 0: waiting for rank 1 \\(1 of 2\\) \\([0-9]+ms of 300 s\\): is it started\\?"));
}

TEST(WaitingNotice, IsSilentWhereAnotherRankSpeaks) {
  int lines = 0, asked = 0;
  const auto write = [&](const std::string&) { ++lines; };
  WaitingNotice notice({"rank 7", absl::Seconds(300), absl::Milliseconds(1), write});
  while (asked < 2) notice.Tick([&] { return ++asked, ""; }, "");
  EXPECT_EQ(lines, 0);
}

}  // namespace
}  // namespace lockstep::comm
