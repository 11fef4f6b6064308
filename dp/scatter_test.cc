#include "lockstep/dp/scatter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/torch_status.h"

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
