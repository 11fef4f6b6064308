// Saves with one number of ranks, loads with another, and compares with the tensors of one process.

#include "lockstep/checkpoint/sharded/sharded.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/sharded/load_whole.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::ElementsAre;

constexpr SaveOptions kNoSync = {.sync = false};

std::string TestPath(const std::string& name) { return absl::StrCat(testing::TempDir(), "/sharded_", name); }

at::Tensor Numbers(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::arange(c10::multiply_integers(sizes), dtype).reshape(sizes);
}

// Rank `rank`'s of `ranks` parts along `dimension`, cut as torch.chunk cuts: the last may be smaller, or empty.
Shard CutAlong(const at::Tensor& whole, int64_t dimension, int rank, int ranks) {
  const int64_t size = whole.size(dimension), each = (size + ranks - 1) / ranks;
  const int64_t start = std::min(size, rank * each), end = std::min(size, start + each);
  std::vector<int64_t> offsets(whole.dim(), 0);
  offsets[dimension] = start;
  return {offsets, whole.narrow(dimension, start, end - start)};
}

// The tensors that the tests save, as the reference. No rank has all of them.
struct Reference {
  at::Tensor rows = Numbers({7, 3});
  at::Tensor columns = Numbers({2, 9}, at::kDouble);
  at::Tensor grid = Numbers({5, 6}, at::kInt);
  at::Tensor vector = Numbers({1}, at::kBFloat16);
  at::Tensor empty = at::empty({0, 4});
  at::Tensor scalar = at::full({}, 2.5);
  at::Tensor replicated = Numbers({4, 2}).t();
};

ShardedTensor Sharded(const at::Tensor& whole, std::vector<Shard> shards) {
  return {whole.sizes().vec(), std::move(shards)};
}

// A 2-d layout: rank r has the column block r % 2 of the row block r / 2.
Shard CutGrid(const at::Tensor& grid, int rank, int ranks) {
  const int across = ranks > 1 ? 2 : 1;
  Shard rows = CutAlong(grid, 0, rank / across, (ranks + across - 1) / across);
  Shard part = CutAlong(rows.tensor, 1, rank % across, across);
  part.offsets[0] = rows.offsets[0];
  return part;
}

ShardedStateDict StateOf(const Reference& all, int rank, int ranks) {
  ShardedStateDict state = {{{"model", "rows"}, Sharded(all.rows, {CutAlong(all.rows, 0, rank, ranks)})},
                            {{"model", "columns"}, Sharded(all.columns, {CutAlong(all.columns, 1, rank, ranks)})},
                            {{"model", "vector"}, Sharded(all.vector, {CutAlong(all.vector, 0, rank, ranks)})},
                            {{"model", "empty"}, Sharded(all.empty, {CutAlong(all.empty, 0, rank, ranks)})},
                            {"scalar", Sharded(all.scalar, {{{}, all.scalar}})},
                            {{"list", 0}, Value(all.replicated)},
                            {{"list", 1}, Value("text")},
                            {"epoch", 7}};
  // With an odd number the last row block lacks its second column block, which the last rank has too.
  std::vector<Shard> grid = {CutGrid(all.grid, rank, ranks)};
  if (ranks > 1 && ranks % 2 == 1 && rank == ranks - 1) grid.push_back(CutGrid(all.grid, rank + 1, ranks));
  state.push_back({"grid", Sharded(all.grid, grid)});
  return state;
}

void Save(const std::string& directory, const Reference& all, int ranks) {
  EXPECT_EQ(absl::OkStatus(), RunRanksOk(ranks, [&](ProcessGroup& group) {
              EXPECT_EQ(absl::OkStatus(), SaveSharded(directory, StateOf(all, group.rank(), ranks), &group, kNoSync));
            }));
}

// `state` with other tensors of the same shapes, and None for plain values.
ShardedStateDict Blank(ShardedStateDict state) {
  for (ShardedEntry& entry : state) {
    if (Value* value = std::get_if<Value>(&entry.value)) {
      *value = value->is_tensor() ? Value(at::zeros_like(value->tensor())) : Value();
      continue;
    }
    for (Shard& shard : std::get<ShardedTensor>(entry.value).shards) shard.tensor = at::zeros_like(shard.tensor);
  }
  return state;
}

void ExpectSame(const ShardedStateDict& found, const ShardedStateDict& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (const Value* value = std::get_if<Value>(&found[i].value)) {
      EXPECT_TRUE(Identical(*value, std::get<Value>(expected[i].value))) << found[i].name();
      continue;
    }
    const auto& shards = std::get<ShardedTensor>(found[i].value).shards;
    const auto& wanted = std::get<ShardedTensor>(expected[i].value).shards;
    for (size_t j = 0; j < shards.size(); ++j) {
      EXPECT_TRUE(Identical(Value(shards[j].tensor), Value(wanted[j].tensor))) << found[i].name() << ", shard " << j;
    }
  }
}

class FromRanksToRanks : public testing::TestWithParam<int> {};

TEST_P(FromRanksToRanks, WhatIsSavedIsLoadedByAnyNumberOfRanks) {
  const int saving = GetParam();
  const Reference all;
  const std::string directory = TestPath(absl::StrCat("from_", saving));
  Save(directory, all, saving);
  for (int loading = 1; loading <= 5; ++loading) {
    EXPECT_EQ(absl::OkStatus(), RunRanksOk(loading, [&](ProcessGroup& group) {
                const ShardedStateDict expected = StateOf(all, group.rank(), loading);
                ShardedStateDict state = Blank(expected);
                EXPECT_EQ(absl::OkStatus(), LoadSharded(directory, state, &group));
                ExpectSame(state, expected);
              }));
  }
}

TEST_P(FromRanksToRanks, OneProcessLoadsItWhole) {
  const Reference all;
  const std::string directory = TestPath(absl::StrCat("whole_", GetParam()));
  Save(directory, all, GetParam());
  const auto whole = LoadWhole(directory);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(Identical(
      *whole,
      Value::Dict(
          {{"model",
            Value::Dict({{"rows", all.rows}, {"columns", all.columns}, {"vector", all.vector}, {"empty", all.empty}})},
           {"scalar", all.scalar},
           {"list", Value::List({all.replicated, "text"})},
           {"epoch", 7},
           {"grid", all.grid}})));
}

INSTANTIATE_TEST_SUITE_P(Ranks, FromRanksToRanks, testing::Values(1, 2, 3, 4));

// Cuts `box` at random positions, and each piece again, to the depth `depth`.
std::vector<Box> CutAtRandom(const Box& box, int depth, std::mt19937& random) {
  const size_t dimension = random() % box.sizes.size();
  if (depth == 0 || box.sizes[dimension] < 2) return {box};
  const int64_t at = 1 + random() % (box.sizes[dimension] - 1);
  Box low = box, high = box;
  low.sizes[dimension] = at;
  high.sizes[dimension] -= at;
  high.offsets[dimension] += at;
  std::vector<Box> pieces = CutAtRandom(low, depth - 1, random);
  for (Box& piece : CutAtRandom(high, depth - 1, random)) pieces.push_back(piece);
  return pieces;
}

at::Tensor PartOf(at::Tensor whole, const Box& box) {
  for (size_t d = 0; d < box.sizes.size(); ++d) whole = whole.narrow(d, box.offsets[d], box.sizes[d]);
  return whole;
}

// Deals pieces of random cuts to `ranks`; some pieces to two of them.
std::vector<ShardedTensor> Deal(const at::Tensor& whole, int ranks, std::mt19937& random) {
  const Box all{std::vector<int64_t>(whole.dim(), 0), whole.sizes().vec()};
  std::vector<ShardedTensor> dealt(ranks, Sharded(whole, {}));
  for (const Box& box : CutAtRandom(all, 4, random)) {
    const int first = random() % ranks, second = random() % ranks;
    dealt[first].shards.push_back({box.offsets, PartOf(whole, box)});
    if (second != first && random() % 4 == 0) dealt[second].shards.push_back({box.offsets, PartOf(whole, box)});
  }
  return dealt;
}

TEST(Sharded, RandomLayoutsAreCutAnewAsTheWholeSays) {
  std::mt19937 random(0);
  for (int round = 0; round < 30; ++round) {
    std::vector<int64_t> sizes(1 + random() % 4);
    for (int64_t& size : sizes) size = 1 + random() % 9;
    const at::Tensor whole = Numbers(sizes, random() % 2 == 0 ? at::kFloat : at::kLong);
    const int saving = 1 + random() % 4, loading = 1 + random() % 4;
    const auto saved = Deal(whole, saving, random), wanted = Deal(whole, loading, random);
    const std::string directory = TestPath(absl::StrCat("random_", round));
    EXPECT_EQ(absl::OkStatus(), RunRanksOk(saving, [&](ProcessGroup& group) {
                EXPECT_EQ(absl::OkStatus(), SaveSharded(directory, {{"x", saved[group.rank()]}}, &group, kNoSync));
              }));
    EXPECT_EQ(absl::OkStatus(), RunRanksOk(loading, [&](ProcessGroup& group) {
                const ShardedStateDict expected = {{"x", wanted[group.rank()]}};
                ShardedStateDict state = Blank(expected);
                EXPECT_EQ(absl::OkStatus(), LoadSharded(directory, state, &group));
                ExpectSame(state, expected);
              }));
  }
}

TEST(Sharded, WhatAllRanksHaveIsWrittenOnceAndSharedOut) {
  const std::string directory = TestPath("balanced");
  EXPECT_EQ(absl::OkStatus(), RunRanksOk(3, [&](ProcessGroup& group) {
              ShardedStateDict state;
              for (int i = 0; i < 9; ++i) state.push_back({absl::StrCat("w", i), Value(Numbers({100}))});
              EXPECT_EQ(absl::OkStatus(), SaveSharded(directory, state, &group, kNoSync));
            }));
  const auto metadata = ReadShardedMetadata(directory);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  std::vector<std::string> files;
  for (const ShardedItem& item : metadata->items) {
    ASSERT_EQ(item.chunks.size(), 1);
    files.push_back(item.chunks[0].file);
  }
  const std::vector<std::string> each = {"__0_0.distcp", "__1_0.distcp", "__2_0.distcp"};
  for (const std::string& file : each) EXPECT_EQ(std::count(files.begin(), files.end(), file), 3) << file;
}

TEST(Sharded, APieceOfALargeTensorTakesNoMoreThanItself) {
  const at::Tensor large = Numbers({1000, 1000});
  const std::string directory = TestPath("piece");
  ASSERT_EQ(absl::OkStatus(),
            SaveSharded(directory, {{"x", Sharded(large.narrow(1, 3, 2), {{{0, 0}, large.narrow(1, 3, 2)}})}}, nullptr,
                        kNoSync));
  EXPECT_LT(ReadShardedMetadata(directory)->items.at(0).chunks.at(0).length, 1000 * 2 * 4 + 4096);
}

TEST(Sharded, TensorsAreFilledInPlaceAndConverted) {
  const std::string directory = TestPath("in_place");
  ASSERT_EQ(absl::OkStatus(), SaveSharded(directory, {{"x", Value(Numbers({2, 3}))}}, nullptr, kNoSync));
  const at::Tensor parameter = at::zeros({3, 2}, at::kDouble).set_requires_grad(true);
  ShardedStateDict state = {{"x", Value(parameter.t())}};
  ASSERT_EQ(absl::OkStatus(), LoadSharded(directory, state, nullptr));
  EXPECT_TRUE(parameter.equal(Numbers({2, 3}).t().to(at::kDouble)));
  EXPECT_TRUE(parameter.requires_grad());
}

TEST(Sharded, APartialLoadLeavesWhatTheCheckpointLacks) {
  const std::string directory = TestPath("partial");
  ASSERT_EQ(absl::OkStatus(),
            SaveSharded(directory, {{"old", Value(Numbers({2, 3}))}, {"epoch", 7}}, nullptr, kNoSync));
  EXPECT_EQ(absl::OkStatus(), RunRanksOk(2, [&](ProcessGroup& group) {
              const at::Tensor old = at::zeros({2, 3}), head = at::full({4}, 5.0);
              ShardedStateDict state = {{"old", Value(old)}};
              if (group.rank() == 1) state.push_back({{"head", "weight"}, Value(head)});
              if (group.rank() == 1) state.push_back({"best", 0.5});
              std::vector<std::string> missing = {"stale"};
              EXPECT_EQ(LoadSharded(directory, state, &group, {}, &missing), absl::OkStatus());
              EXPECT_TRUE(old.equal(Numbers({2, 3})));
              EXPECT_TRUE(head.equal(at::full({4}, 5.0)));
              if (group.rank() == 0) EXPECT_THAT(missing, testing::IsEmpty());
              if (group.rank() == 1) EXPECT_THAT(missing, ElementsAre("head.weight", "best"));
              if (group.rank() == 1) EXPECT_EQ(FindValue(state, "best")->double_value(), 0.5);
            }));
  ShardedStateDict other = {{"old", Value(at::zeros({3, 2}))}};
  std::vector<std::string> missing;
  EXPECT_EQ(LoadSharded(directory, other, nullptr, {}, &missing).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Sharded, OnePartOfTheStateDictLoadsWhole) {
  const std::string directory = TestPath("below");
  const auto state = FlattenStateDict(
      Value::Dict({{"model", Value::Dict({{"w", Numbers({2})}, {"layers", Value::List({Numbers({1}), 3})}})},
                   {"models", Value::Dict({{"w", Numbers({3})}})},
                   {"epoch", 7}}));
  ASSERT_EQ(absl::OkStatus(), SaveSharded(directory, *state, nullptr, kNoSync));
  EXPECT_TRUE(Identical(*LoadWhole(directory, {}, "model"),
                        Value::Dict({{"w", Numbers({2})}, {"layers", Value::List({Numbers({1}), 3})}})));
  EXPECT_TRUE(Identical(*LoadWhole(directory, {}, {"model", "layers"}), Value::List({Numbers({1}), 3})));
  EXPECT_TRUE(Identical(*LoadWhole(directory, {}, {"models", "w"}), Numbers({3})));
  EXPECT_EQ(LoadWhole(directory, {}, "epoch")->int_value(), 7);
  EXPECT_EQ(LoadWhole(directory, {}, "optimizer").status(),
            absl::NotFoundError(directory + ": [\"optimizer\"]: the checkpoint has no item there; it has [\"model\"], "
                                            "[\"models\"], [\"epoch\"]"));
}

TEST(Sharded, AStateDictIsCutAsPythonCutsIt) {
  const at::Tensor x = Numbers({2});
  const auto state = FlattenStateDict(Value::Dict({{"a", Value::Dict({{"b.c", x}, {0, 1}, {Value(), 2}, {true, 3}})},
                                                   {"list", Value::List({x, Value::List({1}), Value::Dict()})},
                                                   {"plain", Value::List({1, Value::List({2})})},
                                                   {"tuple", Value::Tuple({x})},
                                                   {"gone", Value::Dict()}}));
  ASSERT_TRUE(state.ok()) << state.status();
  std::vector<std::string> names;
  for (const ShardedEntry& entry : *state) names.push_back(entry.name());
  EXPECT_THAT(names, ElementsAre("a.b.c", "a.0", "a.None", "a.True", "list.0", "list.1", "plain", "tuple"));
  EXPECT_TRUE(FindValue(*state, "a.b.c")->tensor().is_alias_of(x));
  EXPECT_EQ(FlattenStateDict(Value::Dict({{"a", Value::Dict({{1.5, x}})}})).status().message(),
            "[\"a\"]: a key of type float has no name");
  EXPECT_EQ(FlattenStateDict(3).status().message(), "a state dict must be a dict, found int");
}

}  // namespace
}  // namespace lockstep::checkpoint
