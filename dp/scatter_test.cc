#include "lockstep/dp/scatter.h"

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
#include "lockstep/dp/gather.h"

namespace lockstep::dp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const c10::Device kCpu(c10::kCPU);

std::vector<c10::Device> Cpus(size_t count) { return std::vector<c10::Device>(count, kCpu); }

std::vector<int64_t> Sizes(const std::vector<at::Tensor>& chunks, int64_t dim = 0) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& chunk : chunks) sizes.push_back(chunk.size(dim));
  return sizes;
}

template <typename F>
std::string Message(F&& f) {
  return std::string(TorchStatus("", f).message());
}

TEST(Scatter, CutsAsTorchChunk) {
  for (int64_t size = 0; size < 20; ++size) {
    for (int64_t devices = 1; devices < 7; ++devices) {
      const at::Tensor batch = at::arange(size * 3).view({size, 3});
      const auto expected = batch.chunk(devices);
      const auto chunks = Scatter(batch, Cpus(devices));
      ASSERT_EQ(chunks.size(), expected.size()) << size << " over " << devices;
      for (size_t i = 0; i < chunks.size(); ++i) EXPECT_TRUE(chunks[i].equal(expected[i])) << size << " " << devices;
    }
  }
}

TEST(Scatter, UsesFewerDevicesForFewSamples) {
  EXPECT_THAT(Sizes(Scatter(at::rand({5, 2}), Cpus(4))), ElementsAre(2, 2, 1));
  EXPECT_THAT(Sizes(Scatter(at::rand({1, 2}), Cpus(4))), ElementsAre(1));
}

TEST(Scatter, GivesEveryDeviceAnEmptyChunkOfAnEmptyBatch) {
  EXPECT_THAT(Sizes(Scatter(at::rand({0, 2}), Cpus(3))), ElementsAre(0, 0, 0));
}

TEST(Scatter, CutsAlongAnyDimension) {
  EXPECT_THAT(Sizes(Scatter(at::rand({2, 6}), Cpus(2), 1), 1), ElementsAre(3, 3));
  EXPECT_THAT(Sizes(Scatter(at::rand({2, 6}), Cpus(2), -1), 1), ElementsAre(3, 3));
}

TEST(Scatter, LooksIntoNestedValuesAndCopiesWhatIsNoTensor) {
  using Value = std::tuple<std::map<std::string, std::vector<at::Tensor>>, int, std::string>;
  const Value value{{{"a", {at::arange(4), at::arange(8)}}, {"b", {}}}, 7, "text"};
  const std::vector<Value> parts = Scatter(value, Cpus(2));
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_TRUE(std::get<0>(parts[1]).at("a")[0].equal(at::tensor({2L, 3L})));
  EXPECT_TRUE(std::get<0>(parts[1]).at("a")[1].equal(at::tensor({4L, 5L, 6L, 7L})));
  EXPECT_EQ(std::get<1>(parts[1]), 7);
  EXPECT_EQ(std::get<2>(parts[0]), "text");
}

TEST(Scatter, GivesEveryDeviceWhatCannotBeCut) {
  EXPECT_THAT(Scatter(3, Cpus(3)), ElementsAre(3, 3, 3));
  const auto parts = Scatter(std::tuple(at::rand({2, 2}), at::scalar_tensor(5), at::Tensor()), Cpus(2));
  EXPECT_EQ(std::get<1>(parts[1]).item<int>(), 5);
  EXPECT_FALSE(std::get<2>(parts[1]).defined());
}

TEST(Scatter, PutsGradientsTogetherAgain) {
  at::Tensor batch = at::rand({5, 2}).set_requires_grad(true);
  const auto chunks = Scatter(batch, Cpus(4));
  at::Tensor loss = at::zeros({});
  for (size_t i = 0; i < chunks.size(); ++i) loss = loss + chunks[i].sum() * static_cast<double>(i + 1);
  loss.backward();
  EXPECT_TRUE(batch.grad().select(1, 0).equal(at::tensor({1.f, 1.f, 2.f, 2.f, 3.f})));
}

TEST(Scatter, SumsTheGradientsOfACopiedScalar) {
  at::Tensor scale = at::scalar_tensor(2.0).set_requires_grad(true);
  const auto parts = Scatter(std::tuple(at::ones({4}), scale), Cpus(2));
  (std::get<1>(parts[0]) * 3 + std::get<1>(parts[1]) * 4).backward();
  EXPECT_EQ(scale.grad().item<double>(), 7);
}

TEST(Scatter, LetsAModuleWriteToItsChunk) {
  at::Tensor batch = at::ones({4}).set_requires_grad(true);
  const auto chunks = Scatter(batch * 2, Cpus(2));
  chunks[1].mul_(10);
  at::cat(chunks).sum().backward();
  EXPECT_TRUE(batch.grad().equal(at::tensor({2.f, 2.f, 20.f, 20.f})));
}

TEST(Scatter, GivesEachChunkAVersionOfItsOwn) {
  const at::Tensor batch = at::ones({4});
  const auto chunks = Scatter(batch, Cpus(2));
  chunks[0].mul_(2);
  EXPECT_TRUE(batch.equal(at::tensor({2.f, 2.f, 1.f, 1.f})));
  EXPECT_EQ(chunks[1]._version(), 0);
}

TEST(Scatter, NamesTensorsThatGiveDifferentNumbersOfChunks) {
  const std::tuple value(at::rand({8, 4}), at::rand({3}));
  EXPECT_EQ(Message([&] { Scatter(value, Cpus(4)); }),
            "Scatter: expected the same number of chunks of every tensor along dimension 0 for 4 devices, found 4 of "
            "shape [8, 4] and 3 of tensor 1 of shape [3]");
}

TEST(Scatter, NamesATensorThatLacksTheDimension) {
  EXPECT_EQ(Message([&] {
              Scatter(std::tuple(at::rand({2, 2}), at::rand({3})), Cpus(2), 1);
            }),
            "Scatter: expected tensors with a dimension 1, found tensor 1 of shape [3]");
  EXPECT_THROW(Scatter(at::rand({2}), Cpus(2), -2), c10::IndexError);
}

TEST(Scatter, NeedsADevice) {
  EXPECT_THAT(Message([&] { Scatter(at::rand({2}), {}); }), HasSubstr("expected one device or more, found none"));
}

}  // namespace
}  // namespace lockstep::dp

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
