#include "lockstep/base/tensors.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace users {

struct Output {
  at::Tensor logits;
  std::string name;
};

template <typename F>
Output MapTensors(const Output& output, F&& f) {
  return {f(output.logits), output.name};
}

}  // namespace users

namespace lockstep {
namespace {

using ::testing::ElementsAre;

at::Tensor Number(double value) { return at::scalar_tensor(value, at::kDouble); }

template <typename T>
std::vector<double> Found(const T& value) {
  std::vector<double> found;
  ForEachTensor(value, [&](const at::Tensor& tensor) { found.push_back(tensor.item<double>()); });
  return found;
}

TEST(ForEachTensor, FindsThemFromLeftToRightInNestedValues) {
  EXPECT_THAT(Found(Number(1)), ElementsAre(1));
  EXPECT_THAT(Found(std::make_tuple(Number(1), 7, std::make_pair(Number(2), std::string("x")), Number(3))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Found(std::vector<std::array<at::Tensor, 2>>{{Number(1), Number(2)}, {Number(3), Number(4)}}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Found(std::map<std::string, std::optional<at::Tensor>>{{"b", Number(2)}, {"a", Number(1)}, {"c", {}}}),
              ElementsAre(1, 2));
  EXPECT_THAT(Found(users::Output{Number(5), "five"}), ElementsAre(5));
  EXPECT_THAT(Found(std::vector<users::Output>{{Number(5), ""}, {Number(6), ""}}), ElementsAre(5, 6));
  EXPECT_THAT(Found(42), ElementsAre());
}

TEST(ForEachTensor, GoesThroughUnorderedMapsByKey) {
  std::unordered_map<std::string, at::Tensor> map;
  for (const char* key : {"d", "a", "c", "b"}) map.emplace(key, Number(key[0] - 'a'));
  EXPECT_THAT(Found(map), ElementsAre(0, 1, 2, 3));
}

TEST(ForEachTensor, LooksIntoIValues) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("x", c10::ivalue::Tuple::create({Number(1), c10::IValue(3), std::vector<at::Tensor>{Number(2)}}));
  EXPECT_THAT(Found(c10::IValue(dict)), ElementsAre(1, 2));
}

TEST(MapTensors, ReplacesTensorsAndKeepsTheRest) {
  const auto twice = [](const at::Tensor& tensor) { return tensor * 2; };
  const auto value = std::make_tuple(Number(1), 7, std::vector<at::Tensor>{Number(2)});
  const auto mapped = MapTensors(value, twice);
  EXPECT_THAT(Found(mapped), ElementsAre(2, 4));
  EXPECT_EQ(std::get<1>(mapped), 7);
  EXPECT_THAT(Found(value), ElementsAre(1, 2));
  EXPECT_EQ(MapTensors(users::Output{Number(5), "five"}, twice).name, "five");
  EXPECT_THAT(Found(MapTensors(c10::IValue(std::vector<at::Tensor>{Number(3)}), twice)), ElementsAre(6));
}

TEST(KMayHoldTensors, IsKnownFromTheType) {
  EXPECT_TRUE(kMayHoldTensors<const std::vector<at::Tensor>&>);
  EXPECT_TRUE(kMayHoldTensors<users::Output>);
  EXPECT_FALSE(kMayHoldTensors<std::vector<int>>);
  EXPECT_FALSE(kMayHoldTensors<std::unique_ptr<at::Tensor>>);
}

}  // namespace
}  // namespace lockstep
