#include "lockstep/sampler/torch_sampler.h"

#include <c10/util/Exception.h>
#include <torch/data/samplers/sequential.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using ::testing::ElementsAre;
using testing::Epoch;
using testing::MakeLoader;
using testing::Transfer;

// A user's class: the indices below `size`, from the last one.
class Backwards : public Sampler {
 public:
  explicit Backwards(size_t size) : size_(size), left_(size) {}

  void reset(std::optional<size_t> new_size = std::nullopt) override { left_ = size_ = new_size.value_or(size_); }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    std::vector<size_t> batch;
    while (left_ > 0 && batch.size() < batch_size) batch.push_back(--left_);
    return batch.empty() ? std::nullopt : std::optional(batch);
  }

 protected:
  size_t size_, left_;
};

class SavedBackwards : public Backwards {
 public:
  using Backwards::Backwards;

  void save(torch::serialize::OutputArchive& archive) const { archive.write("left", static_cast<int64_t>(left_)); }
  void load(torch::serialize::InputArchive& archive) {
    c10::IValue left;
    archive.read("left", left);
    left_ = left.toInt();
  }
};

class InADataLoader : public ::testing::TestWithParam<size_t> {};

TEST_P(InADataLoader, AUsersSamplerDecidesTheOrder) {
  auto loader = MakeLoader(Backwards(20), GetParam());
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<int64_t> indices = Epoch(loader);
    ASSERT_EQ(indices.size(), 20);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(indices[i], 19 - i);
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

TEST(TorchSampler, PassesOnANewSize) {
  TorchSampler sampler(Backwards(20));
  sampler.reset(3);
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(2, 1)));
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(0)));
  EXPECT_EQ(sampler.next(2), std::nullopt);
}

TEST(TorchSampler, SavesAUsersSamplerByItsMembers) {
  SavedBackwards sampler(5), other(5);
  ASSERT_TRUE(sampler.next(2));
  Transfer(sampler, other);
  EXPECT_THAT(Drain(other), ElementsAre(2, 1, 0));
}

TEST(TorchSampler, NamesTheMembersThatAUsersSamplerLacks) {
  const auto error = [](auto f) -> std::string {
    try {
      f();
    } catch (const c10::NotImplementedError& error) {
      return error.what_without_backtrace();
    }
    return "nothing was thrown";
  };
  TorchSampler sampler(Backwards(5));
  torch::serialize::OutputArchive out;
  EXPECT_EQ(error([&] { sampler.save(out); }),
            "TorchSampler: the sampler's class has no member save(torch::serialize::OutputArchive&) const");
  torch::serialize::InputArchive in;
  EXPECT_EQ(error([&] { sampler.load(in); }),
            "TorchSampler: the sampler's class has no member load(torch::serialize::InputArchive&)");
}

TEST(SamplerFromTorch, GivesTheIndicesOfLibTorchsSampler) {
  torch::data::samplers::SequentialSampler in_order(5);
  SamplerFromTorch sampler(&in_order);
  EXPECT_THAT(Drain(sampler), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(sampler.next(1), std::nullopt);
  sampler.reset(2);
  EXPECT_THAT(Drain(sampler), ElementsAre(0, 1));
}

}  // namespace
}  // namespace lockstep::sampler
