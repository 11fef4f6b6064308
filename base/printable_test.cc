#include "lockstep/base/printable.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Printable, EscapesControlCharactersAndWhatIsNotUtf8) {
  EXPECT_EQ(Printable("a\nb\x7f"), "a\\nb\\x7f");
  EXPECT_EQ(Printable("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \\ \"x\""),
            "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \\ \"x\"");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "2J \x9B \xC3"),
            "\\xc2\\x9b2J \\x9b \\xc3");
}

TEST(Printable, EscapesWhatChangesTheDirectionOfText) {
  EXPECT_EQ(Printable("a\xE2\x80\xAE"
                      "txt.exe"),
            "a\\xe2\\x80\\xaetxt.exe");
  for (const char* control :
       {"\xD8\x9C", "\xE2\x80\x8E", "\xE2\x80\x8F", "\xE2\x80\xAA", "\xE2\x81\xA6", "\xE2\x81\xA9"}) {
    EXPECT_EQ(Printable(control).front(), '\\');
  }
  for (const char* other :
       {"\xD8\x9B", "\xE2\x80\x8D", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\xA5", "\xE2\x81\xAA", "\xD7\x90"}) {
    EXPECT_EQ(Printable(other), other);
  }
}

}  // namespace
}  // namespace lockstep
