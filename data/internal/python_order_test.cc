#include "lockstep/data/internal/python_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::data::internal {
namespace {

// As `sorted()` of Python 3.11 gives them, after os.fsdecode().
TEST(PythonLess, SortsAsPythonDoes) {
  const std::vector<std::string> sorted = {
      "",
      "A",
      "a",
      "a-b",
      "a/b",
      "ab",
      "z",
      "\u00e9",
      "\u07ff",
      "\u0800",
      "\ud7ff",
      "\x80",              // a byte that begins nothing
      "\xc0\x80",          // overlong
      "\xc3",              // cut short
      "\xc3(",             // not continued
      "\xed\xa0\x80",      // a surrogate
      "\xf4\x90\x80\x80",  // beyond Unicode
      "\xff",
      "\ue000",
      "\uffff",
      "\U00010000",
      "\U0010ffff",
  };
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) EXPECT_EQ(PythonLess(sorted[i], sorted[j]), i < j) << i << " " << j;
  }
}

}  // namespace
}  // namespace lockstep::data::internal
