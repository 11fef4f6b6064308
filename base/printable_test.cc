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

}  // namespace
}  // namespace lockstep
