#include "lockstep/checkpoint/value.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint {
namespace {

Value Example() {
  return Value::Dict(
      {{"epoch", 3},
       {"name", "resnet18"},
       {"optimizer", Value::Dict({{"param_groups", Value::List({Value::Dict({{"lr", 0.1}, {"nesterov", false}})})}})},
       {"weight", at::ones({2})},
       {7, Value()}});
}

TEST(Value, KnowsItsTypeAndPythonsNameOfIt) {
  EXPECT_EQ(Value().type_name(), "None");
  EXPECT_EQ(Value(true).type_name(), "bool");
  EXPECT_EQ(Value(size_t{1}).type_name(), "int");
  EXPECT_EQ(Value(1.0f).type_name(), "float");
  EXPECT_EQ(Value("x").type_name(), "str");
  EXPECT_EQ(Value::Bytes("x").type_name(), "bytes");
  EXPECT_EQ(Value(at::ones({1})).type_name(), "Tensor");
  EXPECT_EQ(Value::Parameter(at::ones({1})).type_name(), "Parameter");
  EXPECT_EQ(Value::List().type_name(), "list");
  EXPECT_EQ(Value::Tuple().type_name(), "tuple");
  EXPECT_EQ(Value::Dict().type_name(), "dict");
  EXPECT_EQ(Value::OrderedDict().type_name(), "OrderedDict");
}

TEST(Value, FindsWhatIsThereByPythonsRuleOfKeys) {
  const Value value = Example();
  ASSERT_NE(value.Find("epoch"), nullptr);
  EXPECT_EQ(value.Find("epoch")->int_value(), 3);
  EXPECT_EQ(value.Find("missing"), nullptr);
  EXPECT_EQ(Value(3).Find("epoch"), nullptr);
  EXPECT_NE(value.Find(7), nullptr);
  EXPECT_NE(value.Find(7.0), nullptr) << "1 and 1.0 are one key";
  EXPECT_EQ(value.Find("7"), nullptr);
  EXPECT_EQ(value.Find(Value::Bytes("epoch")), nullptr);
}

TEST(Value, AnEntrySetAgainKeepsItsPlace) {
  Value dict = Value::Dict({{"a", 1}, {"b", 2}, {"a", 3}});
  ASSERT_EQ(dict.size(), 2);
  EXPECT_EQ(dict.entries()[0].second.int_value(), 3);
  dict.Set("b", 4);
  dict.Set("c", 5);
  EXPECT_EQ(dict.entries()[1].second.int_value(), 4);
  EXPECT_EQ(dict.entries()[2].first.string_value(), "c");
}

TEST(Value, EachNanIsAKey) {
  const double nan = std::nan("");
  Value dict = Value::Dict({{nan, 1}, {"a", 2}, {nan, 3}});
  dict.Set(nan, 4);
  EXPECT_EQ(dict.size(), 4);
  EXPECT_EQ(dict.entries()[2].second.int_value(), 3);
  EXPECT_EQ(dict.Find(nan), nullptr) << "nan != nan";
  EXPECT_EQ(dict.Find("a")->int_value(), 2);
}

TEST(Value, AttributesOfATensorAreItsOwn) {
  const at::Tensor tensor = at::ones({2});
  const Value plain = Value::Parameter(tensor);
  Value marked = plain;
  marked.SetAttributes(Value::Dict({{"tag", "x"}}));
  EXPECT_TRUE(marked.is_parameter());
  EXPECT_EQ(*GetString(marked.attributes(), "tag"), "x");
  EXPECT_TRUE(plain.attributes().is_none());
  EXPECT_FALSE(Identical(plain, marked));
  EXPECT_TRUE(Identical(marked, Value(marked)));
}

TEST(Value, ChangingACopyLeavesTheOriginal) {
  Value dict = Value::Dict({{"a", 1}});
  Value copy = dict;
  EXPECT_EQ(copy.identity(), dict.identity());
  copy.Set("a", 2);
  copy.Set("self", copy);
  EXPECT_EQ(dict.size(), 1);
  EXPECT_EQ(dict.Find("a")->int_value(), 1);
  EXPECT_EQ(copy.Find("self")->Find("self"), nullptr);
  Value list = Value::List({1});
  const Value same = list;
  list.Append(2);
  EXPECT_EQ(same.size(), 1);
  EXPECT_EQ(list.size(), 2);
}

TEST(Get, WalksPaths) {
  const Value value = Example();
  EXPECT_EQ(*GetInt(value, "epoch"), 3);
  EXPECT_EQ(*GetDouble(value, "epoch"), 3.0);
  EXPECT_EQ(*GetString(value, "name"), "resnet18");
  EXPECT_EQ(*GetDouble(value, {"optimizer", "param_groups", 0, "lr"}), 0.1);
  EXPECT_EQ(*GetBool(value, {"optimizer", "param_groups", 0, "nesterov"}), false);
  EXPECT_EQ(GetItems(value, {"optimizer", "param_groups"})->size(), 1);
  EXPECT_EQ(GetDict(value, "optimizer")->size(), 1);
  EXPECT_EQ(GetTensor(value, "weight")->numel(), 2);
}

TEST(Get, SaysWhereItEndedAndWhatItFound) {
  const Value value = Example();
  EXPECT_EQ(GetInt(value, "name").status(),
            absl::InvalidArgumentError("[\"name\"]: expected int, found str \"resnet18\""));
  EXPECT_EQ(GetInt(value, {"optimizer", "param_groups", 0, "lr"}).status(),
            absl::InvalidArgumentError("[\"optimizer\"][\"param_groups\"][0][\"lr\"]: expected int, found float 0.1"));
  EXPECT_EQ(GetTensor(value, "optimizer").status(),
            absl::InvalidArgumentError("[\"optimizer\"]: expected Tensor, found dict"));
  EXPECT_EQ(GetInt(value, "iteration").status(),
            absl::NotFoundError(
                "[\"iteration\"]: no such key; the dict has \"epoch\", \"name\", \"optimizer\", \"weight\", 7"));
  EXPECT_EQ(Get(value, {"optimizer", "param_groups", 1}).status(),
            absl::NotFoundError("[\"optimizer\"][\"param_groups\"][1]: no such index; the list has 1 items"));
  EXPECT_EQ(Get(value, {"epoch", "x"}).status(), absl::InvalidArgumentError("[\"epoch\"]: expected dict, found int 3"));
  EXPECT_EQ(GetInt(Value(true), "x").status(),
            absl::InvalidArgumentError("[\"x\"]: expected to look into a dict, found bool True"));
  EXPECT_FALSE(GetInt(Value::Dict({{"flag", true}}), "flag").ok()) << "a bool is no int";
}

TEST(Identical, ComparesBitsTypesAndOrder) {
  EXPECT_TRUE(Identical(Example(), Example()));
  EXPECT_TRUE(Identical(std::nan(""), std::nan("")));
  EXPECT_FALSE(Identical(0.0, -0.0));
  EXPECT_FALSE(Identical(1, 1.0));
  EXPECT_FALSE(Identical(Value::Dict({{"a", 1}, {"b", 2}}), Value::Dict({{"b", 2}, {"a", 1}})));
  EXPECT_FALSE(Identical(Value::Dict(), Value::OrderedDict()));
  EXPECT_FALSE(Identical(Value::List(), Value::Tuple()));
  EXPECT_TRUE(Identical(at::ones({2, 3}).t(), at::ones({3, 2})));
  EXPECT_FALSE(Identical(at::ones({2}), at::zeros({2})));
  EXPECT_FALSE(Identical(at::ones({2}), Value::Parameter(at::ones({2}))));
  EXPECT_TRUE(Identical(at::ones({2, 2}, at::kComplexDouble), at::ones({2, 2}, at::kComplexDouble)));
}

}  // namespace
}  // namespace lockstep::checkpoint
