// Loads checkpoints that Python's torch.distributed.checkpoint 2.11 and 2.15 wrote (testdata/make_golden.py), and
// damaged copies: with a flipped bit or a missing end they give an error that names the file, or load the same values.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/sharded/load_whole.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/sharded.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kNested[] = "checkpoint/sharded/testdata/nested";
constexpr char kDTensor[] = "checkpoint/sharded/testdata/dtensor";

at::Tensor Rows() { return at::arange(15.0, at::kFloat).view({5, 3}); }

const ShardedItem* FindItem(const ShardedMetadata& metadata, absl::string_view name) {
  for (const ShardedItem& item : metadata.items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

TEST(Golden, ANestedStateDictComesBackNested) {
  const auto state = LoadWhole(kNested);
  ASSERT_TRUE(state.ok()) << state.status();
  const Value model = Value::Dict({{"layer.weight", at::arange(12.0, at::kFloat).view({3, 4})},
                                   {"layer.bias", at::ones({2})},
                                   {"half", at::arange(2, 5, at::kBFloat16)},
                                   {"scalar", at::full({}, 7, at::kLong)},
                                   {"empty", at::empty({2, 0})}});
  // Keys have become strings, and the tuple stayed whole, as in Python.
  const Value group =
      Value::Dict({{"lr", 0.1}, {"betas", Value::Tuple({0.9, 0.999})}, {"params", Value::List({0, 1})}});
  const Value slots =
      Value::Dict({{"0", Value::Dict({{"step", at::full({}, 3.0)}, {"exp_avg", at::arange(6).view({2, 3}).t()}})}});
  const Value expected =
      Value::Dict({{"model", model},
                   {"optimizer", Value::Dict({{"state", slots}, {"param_groups", Value::List({group})}})},
                   {"lists", Value::List({at::ones({1}), Value::List({at::zeros({2})}), 5})},
                   {"plain", Value::List({1, "two", Value(), Value::Bytes("\xff")})},
                   {"nothing", Value()},
                   {"epoch", 7}});
  EXPECT_TRUE(Identical(*state, expected));
}

TEST(Golden, StridesAmongTheProperties) {
  const auto state = LoadWhole("checkpoint/sharded/testdata/strides");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Identical(*state, Value::Dict({{"transposed", at::arange(12.0, at::kFloat).view({3, 4}).t()}})));
}

TEST(Golden, TheMetadataSaysWhatIsWhere) {
  const auto metadata = ReadShardedMetadata(kDTensor);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  std::vector<std::string> names;
  for (const ShardedItem& item : metadata->items) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("rows", "columns", "one_row", "replicated", "plain.rank_independent"));
  const ShardedItem& columns = *FindItem(*metadata, "columns");
  EXPECT_TRUE(columns.is_tensor);
  EXPECT_EQ(columns.dtype, at::kDouble);
  EXPECT_THAT(columns.sizes, ElementsAre(5, 3));
  ASSERT_EQ(columns.chunks.size(), 2);
  EXPECT_THAT(columns.chunks[1].box.offsets, ElementsAre(0, 2));
  EXPECT_THAT(columns.chunks[1].box.sizes, ElementsAre(5, 1));
  EXPECT_EQ(columns.chunks[1].file, "__1_0.distcp");
  EXPECT_EQ(columns.chunks[1].offset, 2838);
  EXPECT_EQ(columns.chunks[1].length, 1577);
  const ShardedItem& plain = *FindItem(*metadata, "plain.rank_independent");
  EXPECT_FALSE(plain.is_tensor);
  EXPECT_TRUE(Identical(Value::Tuple(plain.path), Value::Tuple({"plain", "rank_independent"})));
  EXPECT_EQ(plain.chunks.at(0).file, "__1_0.distcp");
}

TEST(Golden, DTensorsOfTwoRanksComeBackWhole) {
  const auto state = LoadWhole(kDTensor);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(Identical(*state, Value::Dict({{"rows", Rows()},
                                             {"columns", Rows().to(at::kDouble)},
                                             {"one_row", at::full({1, 2}, 5.0)},
                                             {"replicated", at::arange(4)},
                                             {"plain", Value::Dict({{"rank_independent", 3}})}})));
}

TEST(Golden, DTensorsOfTwoRanksAreCutAnew) {
  const at::Tensor middle = at::empty({3, 2}), columns = at::empty({5, 1}, at::kDouble);
  ShardedStateDict state = {{"rows", ShardedTensor{{5, 3}, {{{1, 1}, middle}}}},
                            {"columns", ShardedTensor{{5, 3}, {{{0, 1}, columns}}}},
                            {{"plain", "rank_independent"}, Value()}};
  const absl::Status loaded = LoadSharded(kDTensor, state, nullptr);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(middle.equal(Rows().narrow(0, 1, 3).narrow(1, 1, 2)));
  EXPECT_TRUE(columns.equal(Rows().narrow(1, 1, 1).to(at::kDouble)));
  ASSERT_NE(FindValue(state, "plain.rank_independent"), nullptr);
  EXPECT_TRUE(Identical(*FindValue(state, "plain.rank_independent"), 3));
}

// A copy of a checkpoint of two ranks that Python wrote, for a test to damage.
class Damage : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::copy(kDTensor, directory_);
    std::ostringstream contents;
    contents << std::ifstream(path_, std::ios::binary).rdbuf();
    whole_ = contents.str();
    ASSERT_GT(whole_.size(), 1000);
  }

  void Write(const std::string& contents) {
    std::filesystem::remove(path_);  // it may be a copy of a read-only file
    std::ofstream(path_, std::ios::binary).write(contents.data(), contents.size());
  }

  const std::string directory_ = testing::TempDir() + "/damage" + GetParam();
  const std::string path_ = directory_ + "/" + GetParam();
  std::string whole_;
};

TEST_P(Damage, EveryTruncationIsRefusedByName) {
  const size_t step = whole_.size() > 4000 ? 61 : 1;
  for (size_t size = 0; size < whole_.size(); size += step) {
    Write(whole_.substr(0, size));
    const auto loaded = LoadWhole(directory_);
    ASSERT_FALSE(loaded.ok()) << size;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path_));
  }
}

// Returns whether every tensor of `loaded` equals the tensor of that name in `expected`, if there is one.
bool Agrees(const Value& loaded, const Value& expected) {
  for (const auto& [name, value] : loaded.entries()) {
    const Value* same = expected.Find(name);
    if (same && value.is_tensor() && !Identical(value, *same)) return false;
  }
  return true;
}

// .metadata has no checksum, so a name in it may become another name. A name never gets other numbers.
TEST_P(Damage, NoTurnedBitChangesNumbers) {
  const auto expected = LoadWhole(directory_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::mt19937 random(0);
  int refused = 0;
  const size_t step = whole_.size() > 4000 ? 7 : 1;
  for (size_t at = 0; at < whole_.size(); at += step) {
    std::string changed = whole_;
    changed[at] ^= 1 << random() % 8;
    Write(changed);
    const auto loaded = LoadWhole(directory_);
    if (loaded.ok()) {
      EXPECT_TRUE(Agrees(*loaded, *expected)) << "byte " << at;
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(directory_));
  }
  EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Files, Damage, testing::Values(".metadata", "__0_0.distcp"),
                         [](const auto& info) { return info.param[0] == '.' ? "Metadata" : "Data"; });

}  // namespace
}  // namespace lockstep::checkpoint
