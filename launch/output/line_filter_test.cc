#include "lockstep/launch/output/line_filter.h"

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

TEST(LineFilter, KeepsLinesThatContainAText) {
  LineFilter filter("[a0]:", {"loss", "a,b"});
  std::string out;
  filter.Feed("step 1\nloss 2\nlo", &out);
  EXPECT_EQ(out, "[a0]:loss 2\n");
  filter.Feed("ss 3\n\na,b\na\n", &out);
  EXPECT_EQ(out, "[a0]:loss 2\n[a0]:loss 3\n[a0]:a,b\n");
  out.clear();
  filter.Feed("the last loss", &out);
  EXPECT_EQ(out, "");
  filter.Finish(&out);
  EXPECT_EQ(out, "[a0]:the last loss\n");
}

TEST(LineFilter, DoesNotSearchThePrefix) {
  LineFilter filter("[a0]:", {"a0"});
  std::string out;
  filter.Feed("b\n", &out);
  EXPECT_EQ(out, "");
}

TEST(LineFilter, TakesAnEmptyPrefix) {
  LineFilter filter("", {"x"});
  std::string out;
  filter.Feed("\n\nx\n", &out);
  EXPECT_EQ(out, "x\n");
}

}  // namespace
}  // namespace lockstep::launch
