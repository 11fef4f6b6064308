#include "lockstep/launch/output/last_lines.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(LastLines, AreAtMostTen) {
  std::string text;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&text, "line ", i, "\n");
  EXPECT_THAT(LastLines(text), ElementsAre("line 10", "line 11", "line 12", "line 13", "line 14", "line 15", "line 16",
                                           "line 17", "line 18", "line 19"));
  EXPECT_THAT(LastLines("one\n\ntwo"), ElementsAre("one", "", "two"));
  EXPECT_THAT(LastLines("one\r\n"), ElementsAre("one"));
  EXPECT_THAT(LastLines(""), IsEmpty());
  EXPECT_THAT(LastLines("\n"), IsEmpty());
}

TEST(LastLines, AreAtMostTwoKibibytes) {
  const std::string first(1000, 'a'), second(1040, 'b'), third(8, 'c');
  EXPECT_THAT(LastLines(absl::StrCat(first, "\n", second, "\n", third)), ElementsAre(first, second, third));
  EXPECT_THAT(LastLines(absl::StrCat(first, "\n", second, "\nc", third)), ElementsAre(second, "c" + third));
  EXPECT_THAT(LastLines(std::string(5000, 'x')), ElementsAre("..." + std::string(2045, 'x')));
}

TEST(LastLines, HaveNoControlCharacters) {
  EXPECT_THAT(LastLines("\x1b[2J\a\n"), ElementsAre("\\x1b[2J\\x07"));
  std::string accents;
  for (int i = 0; i < 2000; ++i) accents += "\xC3\xA9";
  const std::vector<std::string> lines = LastLines(accents);
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0], "..." + accents.substr(0, 2044)) << "2045 bytes would begin in the middle of a character";
}

TEST(LastLinesOfFile, ReadsTheEndOfALongFile) {
  const std::string path = testing::NewFolder() + "log";
  EXPECT_THAT(LastLinesOfFile(path), IsEmpty());
  std::ofstream file(path);
  for (int i = 0; i < 10000; ++i) file << "line " << i << " of many\n";
  file << "last" << std::endl;
  const std::vector<std::string> lines = LastLinesOfFile(path);
  ASSERT_THAT(lines, SizeIs(10));
  EXPECT_EQ(lines[0], "line 9991 of many");
  EXPECT_EQ(lines[9], "last");
  file << std::string(100000, 'x') << std::flush;
  EXPECT_THAT(LastLinesOfFile(path), ElementsAre("..." + std::string(2045, 'x')));
}

}  // namespace
}  // namespace lockstep::launch
