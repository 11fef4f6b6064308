#include "lockstep/launch/output/line_prefixer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

std::string Lines(const std::vector<std::string>& pieces, size_t longest = 64 << 10) {
  LinePrefixer prefixer("[default0]:", longest);
  std::string out;
  for (const std::string& piece : pieces) prefixer.Feed(piece, &out);
  out += "|";
  prefixer.Finish(&out);
  return out;
}

TEST(LinePrefixer, WritesALineWhenItHasEnded) {
  EXPECT_EQ(Lines({"one\ntwo\n"}), "[default0]:one\n[default0]:two\n|");
  EXPECT_EQ(Lines({"o", "ne", "\n", "\n"}), "[default0]:one\n[default0]:\n|");
  EXPECT_EQ(Lines({}), "|");
}

TEST(LinePrefixer, WritesALineWithoutAnEndLast) {
  EXPECT_EQ(Lines({"one\ntw", "o"}), "[default0]:one\n|[default0]:two\n");
}

TEST(LinePrefixer, TakesTheStatesOfAProgressBarForLines) {
  EXPECT_EQ(Lines({"10%\r20%\r", "\n30%\r\n\r", "x\r\r\n"}),
            "[default0]:10%\n[default0]:20%\n[default0]:30%\n[default0]:\n[default0]:x\n[default0]:\n|");
}

TEST(LinePrefixer, CutsALineThatIsTooLong) {
  EXPECT_EQ(Lines({"abcd\n"}, 4), "[default0]:abcd\n|");
  EXPECT_EQ(Lines({"abcde\n"}, 4), "[default0]:abcd\n[default0]:e\n|");
  EXPECT_EQ(Lines({"ab", "cdefgh", "ij"}, 4), "[default0]:abcd\n[default0]:efgh\n|[default0]:ij\n");
}

TEST(LinePrefixer, KeepsEveryOtherByte) {
  const std::string bytes("\0\x1b[2J\xff\t", 7);
  EXPECT_EQ(Lines({bytes + "\n"}), "[default0]:" + bytes + "\n|");
}

TEST(FillIn, ReplacesTheNamesThatItKnows) {
  const std::map<std::string, std::string> values = {{"rank", "3"}, {"local_rank", "1"}};
  EXPECT_EQ(FillIn("[${rank}/$local_rank]:", values), "[3/1]:");
  EXPECT_EQ(FillIn("$$rank costs 5$, ${rank", values), "$rank costs 5$, ${rank");
  EXPECT_EQ(FillIn("$ranks ${} $", values), "$ranks ${} $");
  EXPECT_EQ(FillIn("", values), "");
}

}  // namespace
}  // namespace lockstep::launch
