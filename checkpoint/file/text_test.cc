#include "lockstep/checkpoint/file/text.h"

#include "gtest/gtest.h"

namespace lockstep::checkpoint::file {
namespace {

constexpr char kSurrogate[] = "\xed\xa0\x80";

TEST(IsPythonText, TakesWhatPythonDecodes) {
  EXPECT_TRUE(IsPythonText("plain, \xc3\xa9, \xe2\x82\xac, \xf0\x9f\x98\x80"));
  EXPECT_TRUE(IsPythonText(kSurrogate)) << "which Python writes with surrogatepass";
  for (const char* bad :
       {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\x80", "\xe2\x82"}) {
    EXPECT_FALSE(IsPythonText(bad));
  }
}

TEST(IsUtf8, TakesNoSurrogates) {
  EXPECT_TRUE(IsUtf8("\xed\x9f\xbf, \xee\x80\x80, \xf0\x9f\x98\x80")) << "U+D7FF and U+E000 stand beside them";
  EXPECT_FALSE(IsUtf8(kSurrogate));
  EXPECT_FALSE(IsUtf8("\xed\x9f\xbf \xed\xbf\xbf"));
  EXPECT_FALSE(IsUtf8("\xed"));
}

}  // namespace
}  // namespace lockstep::checkpoint::file
