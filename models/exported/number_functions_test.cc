#include "lockstep/models/exported/number_functions.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::models::exported {
namespace {

c10::IValue Call(const std::string& name, std::vector<c10::IValue> operands) {
  const NumberCall call = FindNumberFunction(name);
  EXPECT_NE(call.function, nullptr) << name;
  EXPECT_EQ(call.operands, static_cast<int>(operands.size())) << name;
  call.function(operands);
  EXPECT_EQ(operands.size(), 1) << name;
  return operands[0];
}

// The results are Python's.
TEST(NumberFunctions, RoundAsPython) {
  EXPECT_EQ(Call("_operator.floordiv", {-7, 2}), c10::IValue(-4));
  EXPECT_EQ(Call("_operator.floordiv", {7, -2}), c10::IValue(-4));
  EXPECT_EQ(Call("_operator.floordiv", {6, 2}), c10::IValue(3));
  EXPECT_EQ(Call("_operator.mod", {-7, 3}), c10::IValue(2));
  EXPECT_EQ(Call("_operator.mod", {7, -3}), c10::IValue(-2));
  EXPECT_EQ(Call("_operator.mod", {7.5, 2}), c10::IValue(1.5));
  EXPECT_EQ(Call("_operator.truediv", {7, 2}), c10::IValue(3.5));
  EXPECT_EQ(Call("_operator.pow", {3, 4}), c10::IValue(81));
  EXPECT_EQ(Call("_operator.pow", {2.0, -1}), c10::IValue(0.5));
  EXPECT_EQ(Call("_operator.add", {true, 2}), c10::IValue(3));
  EXPECT_EQ(Call("_operator.sub", {1, 0.5}), c10::IValue(0.5));
  EXPECT_EQ(Call("math.trunc", {-2.5}), c10::IValue(-2));
  EXPECT_EQ(Call("torch.sym_max", {2, 3}), c10::IValue(3));
  EXPECT_EQ(Call("torch.sym_ite", {false, 2, 3}), c10::IValue(3));
  EXPECT_EQ(Call("_operator.le", {2, 2}), c10::IValue(true));
  EXPECT_EQ(Call("_operator.lshift", {3, 4}), c10::IValue(48));
  EXPECT_EQ(FindNumberFunction("builtins.exec").function, nullptr);
}

TEST(NumberFunctions, RefuseWhatHasNoResult) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  const auto fails = [](const std::string& name, std::vector<c10::IValue> operands) {
    return !TorchStatus("", [&] { FindNumberFunction(name).function(operands); }).ok();
  };
  EXPECT_TRUE(fails("_operator.floordiv", {1, 0}));
  EXPECT_TRUE(fails("_operator.floordiv", {kLeast, -1}));
  EXPECT_TRUE(fails("_operator.mod", {1, 0}));
  EXPECT_TRUE(fails("_operator.truediv", {1, 0}));
  EXPECT_TRUE(fails("_operator.add", {kMost, 1}));
  EXPECT_TRUE(fails("_operator.mul", {kMost, 2}));
  EXPECT_TRUE(fails("_operator.pow", {10, 40}));
  EXPECT_TRUE(fails("_operator.neg", {kLeast}));
  EXPECT_TRUE(fails("_operator.lshift", {kMost, 1}));
  EXPECT_TRUE(fails("_operator.add", {1, "one"}));
}

}  // namespace
}  // namespace lockstep::models::exported
