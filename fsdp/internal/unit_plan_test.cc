#include "lockstep/fsdp/internal/unit_plan.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::fsdp::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Units = std::vector<std::vector<int>>;

ParameterInfo Parameter(const std::string& name, int64_t rows, int64_t columns = 1, int dtype = 0) {
  return {name, rows * columns, rows, dtype, 4};
}

const std::vector<ParameterInfo> kGpt = {
    Parameter("tokens.weight", 100, 8),    Parameter("blocks.0.fc.weight", 8, 8), Parameter("blocks.0.fc.bias", 8),
    Parameter("blocks.1.fc.weight", 8, 8), Parameter("blocks.1.fc.bias", 8),      Parameter("norm.weight", 8),
};

TEST(PlanUnits, APathWithAStarIsAUnitForEachModule) {
  Options options;
  options.units = {"blocks.*"};
  EXPECT_EQ(*PlanUnits(kGpt, options), (Units{{0, 5}, {1, 2}, {3, 4}}));
}

TEST(PlanUnits, TheFirstPathThatFitsCounts) {
  Options options;
  options.units = {"blocks.0.fc", "blocks"};
  EXPECT_EQ(*PlanUnits(kGpt, options), (Units{{0, 5}, {1, 2}, {3, 4}}));
}

TEST(PlanUnits, WithoutPathsParametersAreGroupedBySize) {
  Options options;
  options.unit_bytes = 3200 + 256;
  EXPECT_EQ(*PlanUnits(kGpt, options), (Units{{0, 1}, {2, 3, 4, 5}}));
  options.unit_bytes = 1;
  EXPECT_EQ(PlanUnits(kGpt, options)->size(), kGpt.size());
}

TEST(PlanUnits, AUnitHasOneDtype) {
  std::vector<ParameterInfo> parameters = kGpt;
  parameters[2].dtype = 1;
  Options options;
  options.units = {"blocks.*"};
  EXPECT_EQ(*PlanUnits(parameters, options), (Units{{0, 5}, {1}, {2}, {3, 4}}));
}

TEST(PlanUnits, FrozenParametersAreUnitsOfTheirOwn) {
  std::vector<ParameterInfo> parameters = kGpt;
  for (const int frozen : {0, 2}) parameters[frozen].trained = false;
  Options options;
  options.units = {"blocks.*"};
  EXPECT_EQ(*PlanUnits(parameters, options), (Units{{0}, {1}, {2}, {3, 4}, {5}}));
}

TEST(PlanUnits, APathThatFitsNothingIsAnError) {
  Options options;
  options.units = {"blocks.*", "layers.*"};
  EXPECT_THAT(std::string(PlanUnits(kGpt, options).status().message()), HasSubstr("inside of a module \"layers.*\""));
  // The path of a parameter is no module.
  options.units = {"norm.weight"};
  EXPECT_FALSE(PlanUnits(kGpt, options).ok());
  options = {};
  options.unit_bytes = 0;
  EXPECT_EQ(PlanUnits(kGpt, options).status().message(), "unit_bytes 0: expected 1 or more");
}

// Every element has one owner, and no piece crosses another's place.
void ExpectWhole(const std::vector<ParameterInfo>& parameters, int ranks, Shard shard) {
  const UnitLayout layout = LayOut(parameters, ranks, shard);
  std::vector<int64_t> owned(parameters.size(), 0);
  std::vector<int64_t> in_share(ranks, 0);
  int64_t end = 0;
  for (const Piece& piece : layout.pieces) {
    EXPECT_GE(piece.offset, end);
    EXPECT_EQ(piece.offset % 16, 0);
    EXPECT_EQ(piece.begin, owned[piece.parameter]) << "rank " << piece.rank;
    EXPECT_GE(piece.offset, layout.slices[piece.rank]);
    EXPECT_LT(piece.flag(), layout.slices[piece.rank + 1]);
    EXPECT_GE(piece.in_share, in_share[piece.rank]);
    EXPECT_LE(piece.in_share + piece.end - piece.begin, layout.share);
    in_share[piece.rank] = piece.in_share + piece.end - piece.begin;
    if (layout.in_order) {
      EXPECT_EQ(piece.rank * layout.share + piece.in_share, layout.offsets[piece.parameter] + piece.begin);
    }
    owned[piece.parameter] = piece.end;
    end = piece.flag() + 1;
    if (shard == Shard::kElements) {
      EXPECT_EQ(piece.begin % 16, 0);
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(owned[i], parameters[i].numel) << parameters[i].name;
}

TEST(LayOut, EveryElementHasOneOwner) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<ParameterInfo> parameters;
    for (unsigned n = 1 + random() % 6; n > 0; --n)
      parameters.push_back(Parameter("p", random() % 70, 1 + random() % 40));
    const int ranks = static_cast<int>(1 + random() % 9);
    ExpectWhole(parameters, ranks, Shard::kElements);
    ExpectWhole(parameters, ranks, Shard::kRows);
  }
}

TEST(LayOut, RanksOwnEquallyMuch) {
  const UnitLayout layout = LayOut({Parameter("weight", 1024, 16)}, 4, Shard::kElements);
  EXPECT_THAT(layout.slices, ElementsAre(0, 4096 + 16, 2 * (4096 + 16), 3 * (4096 + 16), 4 * (4096 + 16)));
}

TEST(LayOut, ReplicasDivideEachSliceAndOwnTheSamePieces) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const std::vector<ParameterInfo> parameters = {Parameter("a", random() % 70, 5), Parameter("b", random() % 300)};
    const int ranks = static_cast<int>(1 + random() % 4), replicas = static_cast<int>(2 + random() % 4);
    for (const Shard shard : {Shard::kElements, Shard::kRows}) {
      const UnitLayout one = LayOut(parameters, ranks, shard), all = LayOut(parameters, ranks, shard, replicas);
      ASSERT_EQ(all.pieces.size(), one.pieces.size());
      EXPECT_EQ(all.share, one.share);
      for (size_t p = 0; p < one.pieces.size(); ++p) {
        EXPECT_EQ(all.pieces[p].begin, one.pieces[p].begin);
        EXPECT_EQ(all.pieces[p].end, one.pieces[p].end);
        EXPECT_EQ(all.pieces[p].offset - all.slices[all.pieces[p].rank],
                  one.pieces[p].offset - one.slices[one.pieces[p].rank]);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t size = all.slices[rank + 1] - all.slices[rank];
        EXPECT_EQ(size % (16 * replicas), 0);
        EXPECT_LT(size - (one.slices[rank + 1] - one.slices[rank]), 16 * replicas);
      }
    }
  }
}

TEST(LayOut, AKeptPieceIsInTheSlicesOfBothOfItsRanks) {
  const std::vector<ParameterInfo> parameters = {Parameter("weight", 5, 10), Parameter("bias", 5)};
  const UnitLayout layout = LayOut(parameters, 3, {{0, 0, 32, 2, 0}, {0, 32, 50, 1, 1}, {1, 0, 5, 0, 2}});
  EXPECT_THAT(layout.offsets, ElementsAre(0, 64));
  ASSERT_EQ(layout.pieces.size(), 5u);
  const int ranks[] = {0, 0, 1, 2, 2}, ends[] = {32, 5, 50, 32, 5};
  const bool seconds[] = {true, false, false, false, true};
  for (int i = 0; i < 5; ++i) {
    const Piece& piece = layout.pieces[i];
    EXPECT_EQ(piece.rank, ranks[i]);
    EXPECT_EQ(piece.end, ends[i]);
    EXPECT_EQ(piece.is_second, seconds[i]);
    EXPECT_EQ(piece.offset, i == 0 ? 0 : layout.pieces[i - 1].flag() + 16);
  }
  EXPECT_EQ(layout.share, 32);
  EXPECT_FALSE(layout.in_order);
  // Rank 0 has the elements and the flags of its two pieces, and rank 1 those of one of 18 elements.
  EXPECT_THAT(layout.slices, ElementsAre(0, 80, 128, 208));
}

TEST(LayOut, ThePiecesThatARankPublishesArePacked) {
  const UnitLayout layout = LayOut({Parameter("weight", 1, 60), Parameter("bias", 5)}, 2,
                                   {{0, 0, 32, 0, 1}, {0, 32, 60, 1, 0}, {1, 0, 5, 0, 1}});
  std::vector<int64_t> places;
  for (const Piece& piece : layout.pieces) places.push_back(piece.is_second ? -1 : piece.in_share);
  EXPECT_THAT(places, ElementsAre(0, -1, 32, -1, 0, -1));
  EXPECT_EQ(layout.share, 48);
}

TEST(LayOut, RowsAreCutAsPythonsChunk) {
  const UnitLayout layout = LayOut({Parameter("weight", 5, 3)}, 4, Shard::kRows);
  ASSERT_EQ(layout.pieces.size(), 3u);  // 2, 2 and 1 rows; rank 3 has none
  EXPECT_EQ(layout.pieces[2].begin, 12);
  EXPECT_EQ(layout.pieces[2].end, 15);
  EXPECT_EQ(layout.slices[3], layout.slices[4]);
}

TEST(CutIntoChunks, TheChunksHaveAllElementsAndNoneIsEmpty) {
  for (const int ranks : {1, 2, 3, 16}) {
    for (const int replicas : {1, 2}) {
      for (const int64_t most : {1, 100, 1000, 100000}) {
        UnitLayout layout = LayOut({{"a", 1000}, {"b", 37}, {"c", 5000}}, ranks, Shard::kElements, replicas);
        CutIntoChunks(most, replicas, &layout);
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", replicas, " replicas, at most ", most, ": ", layout.chunks));
        EXPECT_LE(layout.chunk_numel, most + 16 * ranks * replicas);
        int64_t largest = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const int64_t part = (layout.slices[rank + 1] - layout.slices[rank]) / replicas;
          EXPECT_GE(layout.chunks * layout.ChunkNumel(part), part);
          largest = std::max(largest, part);
        }
        EXPECT_LT((layout.chunks - 1) * layout.ChunkNumel(largest), largest);
        if (most == 100000) EXPECT_EQ(layout.chunks, 1);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::fsdp::internal
