#include "lockstep/dp/gather.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"

namespace lockstep::dp {

struct Prediction {
  at::Tensor logits, loss;
  int layers = 0;
};

template <typename F>
Prediction MapTensors(const Prediction& prediction, F&& f) {
  return {f(prediction.logits), f(prediction.loss), prediction.layers};
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const c10::Device kCpu(c10::kCPU);

template <typename F>
std::string Message(F&& f) {
  return std::string(TorchStatus("", f).message());
}

// Collects warnings, and has those of TORCH_WARN_ONCE too.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
  c10::WarningUtils::WarnAlways always_{true};
};

TEST(Gather, PutsTensorsTogetherInOrder) {
  EXPECT_TRUE(Gather<at::Tensor>({at::zeros({2, 3}), at::ones({1, 3})}, kCpu)
                  .equal(at::cat({at::zeros({2, 3}), at::ones({1, 3})})));
  EXPECT_EQ(Gather<at::Tensor>({at::zeros({2, 3}), at::ones({2, 1})}, kCpu, -1).sizes(), (c10::IntArrayRef{2, 4}));
  EXPECT_EQ(Gather<at::Tensor>({at::zeros({0, 3}), at::ones({0, 3})}, kCpu).sizes(), (c10::IntArrayRef{0, 3}));
}

TEST(Gather, GivesEachItsPartOfTheGradient) {
  std::vector<at::Tensor> outputs;
  for (int i = 1; i < 4; ++i) outputs.push_back(at::ones({i}).set_requires_grad(true));
  (Gather(outputs, kCpu) * at::arange(6)).sum().backward();
  EXPECT_TRUE(outputs[2].grad().equal(at::tensor({3.f, 4.f, 5.f})));
}

TEST(Gather, MakesAVectorOfScalarsWithPyTorchsWarning) {
  Warnings warnings;
  EXPECT_TRUE(Gather<at::Tensor>({at::scalar_tensor(1), at::scalar_tensor(2)}, kCpu).equal(at::tensor({1.f, 2.f})));
  EXPECT_THAT(warnings.messages, ElementsAre(HasSubstr("all input tensors were scalars; will instead unsqueeze and")));
}

TEST(Gather, CannotGatherScalarsAlongAnotherDimension) {
  EXPECT_EQ(Message([] {
              Gather<at::Tensor>({at::scalar_tensor(1), at::scalar_tensor(2)}, kCpu, 1);
            }),
            "Gather: expected outputs with a dimension 1, found scalars");
}

TEST(Gather, LooksIntoNestedOutputs) {
  using Output = std::tuple<std::map<std::string, at::Tensor>, std::vector<std::pair<at::Tensor, int>>,
                            std::optional<at::Tensor>, std::array<at::Tensor, 2>, bool>;
  const auto output = [](int64_t rows, float value) {
    const at::Tensor t = at::full({rows}, value);
    return Output{{{"a", t}, {"b", t + 1}}, {{t + 2, 5}}, t + 3, {t + 4, t + 5}, true};
  };
  const Output all = Gather<Output>({output(1, 0), output(2, 10)}, kCpu);
  EXPECT_TRUE(std::get<0>(all).at("b").equal(at::tensor({1.f, 11.f, 11.f})));
  EXPECT_TRUE(std::get<1>(all)[0].first.equal(at::tensor({2.f, 12.f, 12.f})));
  EXPECT_EQ(std::get<1>(all)[0].second, 5);
  EXPECT_TRUE(std::get<2>(all)->equal(at::tensor({3.f, 13.f, 13.f})));
  EXPECT_TRUE(std::get<3>(all)[1].equal(at::tensor({5.f, 15.f, 15.f})));
  EXPECT_TRUE(std::get<4>(all));
}

TEST(Gather, GathersATypeOfOnesOwn) {
  const Prediction all =
      Gather<Prediction>({{at::zeros({2, 3}), at::zeros({1}), 4}, {at::ones({2, 3}), at::ones({1}), 4}}, kCpu);
  EXPECT_EQ(all.logits.sizes(), (c10::IntArrayRef{4, 3}));
  EXPECT_TRUE(all.loss.equal(at::tensor({0.f, 1.f})));
  EXPECT_EQ(all.layers, 4);
}

TEST(Gather, FindsMapEntriesByTheirKeys) {
  std::unordered_map<std::string, at::Tensor> first, second;
  for (int i = 0; i < 50; ++i) first.emplace(std::to_string(i), at::full({1}, i));
  for (int i = 50; i-- > 0;) second.emplace(std::to_string(i), at::full({1}, i));
  second.rehash(1000);
  const auto all = Gather<decltype(first)>({first, second}, kCpu);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(all.at(std::to_string(i)).equal(at::full({2}, i))) << i;
}

TEST(Gather, GathersIValues) {
  const auto output = [](float value) {
    c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
    dict.insert("x", at::full({1}, value));
    dict.insert("n", 3);
    return c10::IValue(c10::ivalue::Tuple::create({c10::IValue(at::full({2}, value)), c10::IValue(dict),
                                                   c10::IValue(std::vector<at::Tensor>{at::full({1}, value)})}));
  };
  const c10::IValue all = Gather<c10::IValue>({output(1), output(2)}, kCpu);
  const auto& elements = all.toTupleRef().elements();
  EXPECT_TRUE(elements[0].toTensor().equal(at::tensor({1.f, 1.f, 2.f, 2.f})));
  EXPECT_TRUE(elements[1].toGenericDict().at("x").toTensor().equal(at::tensor({1.f, 2.f})));
  EXPECT_EQ(elements[1].toGenericDict().at("n").toInt(), 3);
  EXPECT_TRUE(elements[2].toTensorVector()[0].equal(at::tensor({1.f, 2.f})));
}

TEST(Gather, KeepsUndefinedOutputsUndefined) {
  EXPECT_FALSE(Gather<at::Tensor>({at::Tensor(), at::Tensor()}, kCpu).defined());
}

TEST(Gather, NamesTheReplicaWhoseOutputDoesNotFit) {
  EXPECT_EQ(Message([] {
              Gather<at::Tensor>({at::ones({2, 3}), at::ones({1, 3}), at::ones({2, 4})}, kCpu);
            }),
            "Gather: expected outputs that differ in dimension 0 only, found a tensor of shape [2, 3] of replica 0 and "
            "a tensor of shape [2, 4] of replica 2");
  EXPECT_EQ(Message([] {
              Gather<at::Tensor>({at::ones({2}), at::Tensor()}, kCpu);
            }),
            "Gather: expected outputs that differ in dimension 0 only, found a tensor of shape [2] of replica 0 and an "
            "undefined tensor of replica 1");
  EXPECT_THAT(Message([] {
                Gather<at::Tensor>({at::ones({2}), at::scalar_tensor(1)}, kCpu);
              }),
              HasSubstr("a tensor of shape [] of replica 1"));
}

TEST(Gather, NamesTheReplicaWhoseOutputHasAnotherStructure) {
  using Tensors = std::vector<at::Tensor>;
  EXPECT_EQ(Message([] {
              Gather<Tensors>({{at::ones({2})}, {}}, kCpu);
            }),
            "Gather: expected as many vector elements of every replica, found 1 of replica 0 and 0 of replica 1");
  using Map = std::map<std::string, at::Tensor>;
  EXPECT_EQ(Message([] {
              Gather<Map>({{{"a", at::ones({2})}}, {{"b", at::ones({2})}}}, kCpu);
            }),
            "Gather: expected maps with the same keys, found one of replica 0 that replica 1 lacks");
  EXPECT_EQ(Message([] {
              Gather<c10::IValue>({at::ones({2}), 3}, kCpu);
            }),
            "Gather: expected outputs of one type, found Tensor of replica 0 and Int of replica 1");
  EXPECT_THAT(Message([] { Gather<at::Tensor>({}, kCpu); }), HasSubstr("expected one output or more, found none"));
}

}  // namespace
}  // namespace lockstep::dp
