#include "lockstep/checkpoint/sharded/internal/unflatten.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint::internal {
namespace {

TEST(Unflatten, PutsValuesInDictsAndListsAsTheirPathsSay) {
  const auto nested = Unflatten(
      {{{"a", "x.y"}, 1}, {{"list", 2}, 2}, {{"b"}, Value::List()}, {{"a", "0", 1, "z"}, 3}, {{"list", 0}, 4}}, 100);
  ASSERT_TRUE(nested.ok()) << nested.status();
  const Value inner = Value::List({Value(), Value::Dict({{"z", 3}})});
  EXPECT_TRUE(Identical(*nested, Value::Dict({{"a", Value::Dict({{"x.y", 1}, {"0", inner}})},
                                              {"list", Value::List({4, Value(), 2})},
                                              {"b", Value::List()}})));
  EXPECT_TRUE(Identical(*Unflatten({}, 0), Value::Dict()));
}

TEST(Unflatten, RefusesPathsThatContradictEachOther) {
  const std::string why = "its path contradicts another item's path";
  EXPECT_EQ(Unflatten({{{"a"}, 1}, {{"a", "b"}, 2}}, 9).status().message(), "item [\"a\"][\"b\"]: " + why);
  EXPECT_EQ(Unflatten({{{"a", "b"}, 2}, {{"a"}, 1}}, 9).status().message(), "item [\"a\"]: " + why);
  EXPECT_EQ(Unflatten({{{"a", 0}, 2}, {{"a", "b"}, 1}}, 9).status().message(), "item [\"a\"][\"b\"]: " + why);
}

TEST(Unflatten, BoundsTheElementsThatAreMissing) {
  EXPECT_EQ(Unflatten({{{"a", 10}, 2}}, 10)->Find("a")->size(), 11);
  EXPECT_EQ(Unflatten({{{"a", 10}, 2}}, 9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Unflatten({{{"a", int64_t{1} << 62}, 2}}, 9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Unflatten({{{"a", 6}, 2}, {{"b", 6}, 2}}, 9).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lockstep::checkpoint::internal
