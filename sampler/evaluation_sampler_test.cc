#include "lockstep/sampler/evaluation_sampler.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using ::testing::ElementsAre;
using testing::Epoch;
using ::testing::IsEmpty;
using testing::MakeLoader;
using testing::Transfer;
using testing::UpTo;
using testing::ValueErrorOf;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

EvaluationSamplerOptions Options(int64_t num_replicas, int64_t rank) {
  EvaluationSamplerOptions options;
  options.num_replicas = num_replicas;
  options.rank = rank;
  return options;
}

EvaluationSampler Make(int64_t size, int64_t num_replicas = 1, int64_t rank = 0) {
  return EvaluationSampler::Create(size, Options(num_replicas, rank)).value();
}

TEST(EvaluationSampler, GivesEveryIndexOnceAndRanksDifferByOneAtMost) {
  for (const int64_t size : {1, 2, 7, 8, 9, 100}) {
    for (const int64_t num_replicas : {1, 2, 3, 8, 13}) {
      std::vector<int64_t> seen(size, 0);
      for (int64_t rank = 0; rank < num_replicas; ++rank) {
        EvaluationSampler sampler = Make(size, num_replicas, rank);
        const std::vector<int64_t> indices = Drain(sampler);
        EXPECT_EQ(indices.size(), sampler.num_samples());
        EXPECT_EQ(sampler.num_samples(), size / num_replicas + (rank < size % num_replicas));
        EXPECT_EQ(sampler.total_size(), size);
        for (const int64_t index : indices) ++seen.at(index);
      }
      EXPECT_EQ(seen, std::vector<int64_t>(size, 1)) << num_replicas << " ranks";
    }
  }
}

TEST(EvaluationSampler, StridesByRankInAscendingOrder) {
  EvaluationSampler rank0 = Make(7, 3, 0), rank1 = Make(7, 3, 1);
  EXPECT_THAT(Drain(rank0), ElementsAre(0, 3, 6));
  EXPECT_THAT(Drain(rank1), ElementsAre(1, 4));
}

TEST(EvaluationSampler, ARankBeyondTheSizeGetsNothing) {
  EvaluationSampler last = Make(3, 8, 2), beyond = Make(3, 8, 3), far = Make(10, kMax, kMax - 1);
  EXPECT_THAT(Drain(last), ElementsAre(2));
  EXPECT_THAT(Drain(beyond), IsEmpty());
  EXPECT_THAT(Drain(far), IsEmpty());
}

TEST(EvaluationSampler, NeedsNoMemoryForASizeAtTheLimit) {
  EvaluationSampler sampler = Make(int64_t{1} << 62, 2, 1);
  EXPECT_EQ(sampler.num_samples(), int64_t{1} << 61);
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(1, 3, 5)));
}

TEST(EvaluationSampler, GivesAShortLastBatchThenNothingUntilReset) {
  EvaluationSampler sampler = Make(5);
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(3, 4)));
  EXPECT_EQ(sampler.next(3), std::nullopt);
  EXPECT_EQ(sampler.next(3), std::nullopt);
  sampler.reset();
  EXPECT_THAT(sampler.next(std::numeric_limits<size_t>::max()), ::testing::Optional(ElementsAre(0, 1, 2, 3, 4)));
}

TEST(EvaluationSampler, CopiesHaveTheirOwnPlaces) {
  EvaluationSampler sampler = Make(5);
  ASSERT_TRUE(sampler.next(2));
  EvaluationSampler copy = sampler;
  EXPECT_THAT(Drain(copy), ElementsAre(2, 3, 4));
  EXPECT_THAT(Drain(sampler), ElementsAre(2, 3, 4));
}

TEST(EvaluationSampler, ResetWithANewSizeDealsThatSizeOut) {
  EvaluationSampler sampler = Make(10, 2, 1);
  Transfer(sampler, sampler);
  ASSERT_TRUE(sampler.next(4));
  Transfer(sampler, sampler);
  sampler.reset(6);
  EXPECT_EQ(sampler.total_size(), 6);
  EXPECT_THAT(Drain(sampler), ElementsAre(1, 3, 5));
  sampler.reset();
  EXPECT_THAT(Drain(sampler), ElementsAre(1, 3, 5));
}

TEST(EvaluationSampler, GoesOnOnceWhereItWasSaved) {
  EvaluationSampler sampler = Make(12, 2, 1);
  ASSERT_TRUE(sampler.next(4));
  EvaluationSampler other = Make(12, 2, 1);
  Transfer(sampler, other);
  EvaluationSampler third = other;
  EXPECT_THAT(Drain(other), ElementsAre(9, 11));
  third.reset();
  EXPECT_THAT(Drain(third), ElementsAre(9, 11));
  third.reset();
  EXPECT_THAT(Drain(third), ElementsAre(1, 3, 5, 7, 9, 11));
  other.reset();
  EXPECT_EQ(Drain(other).size(), 6);
}

TEST(EvaluationSampler, LoadNamesWhatDiffersAndChangesNothing) {
  EvaluationSampler sampler = Make(7, 2, 0);
  Drain(sampler);
  EvaluationSampler larger = Make(8, 2, 0), alone = Make(7, 1, 0), rank1 = Make(7, 2, 1);
  EXPECT_EQ(ValueErrorOf([&] { Transfer(sampler, larger); }), "EvaluationSampler::load: size: expected 8, found 7");
  EXPECT_EQ(ValueErrorOf([&] { Transfer(sampler, alone); }),
            "EvaluationSampler::load: num_replicas: expected 1, found 2");
  EXPECT_EQ(ValueErrorOf([&] { Transfer(sampler, rank1); }),
            "EvaluationSampler::load: consumed: expected a value in [0, 3], found 4");
  EXPECT_THAT(Drain(rank1), ElementsAre(1, 3, 5));
}

TEST(EvaluationSampler, GivesNothingOfAnEmptyDataset) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    EvaluationSampler sampler = EvaluationSampler::Create(0, Options(3, rank)).value();
    EXPECT_EQ(sampler.num_samples(), 0);
    EXPECT_THAT(Drain(sampler), ElementsAre());
    sampler.reset(4);
    EXPECT_EQ(sampler.next(1), std::vector<size_t>{static_cast<size_t>(rank)});
    sampler.reset(0);
    EXPECT_EQ(sampler.next(1), std::nullopt);
  }
}

TEST(EvaluationSampler, CreateNamesWhatIsWrong) {
  const auto error = [](int64_t size, int64_t num_replicas, int64_t rank) {
    return EvaluationSampler::Create(size, Options(num_replicas, rank)).status();
  };
  EXPECT_EQ(error(-1, 1, 0), absl::InvalidArgumentError(
                                 "EvaluationSampler: size: expected a value in [0, 4611686018427387904], found -1"));
  EXPECT_EQ(error((int64_t{1} << 62) + 1, 1, 0),
            absl::InvalidArgumentError("EvaluationSampler: size: expected a value in [0, 4611686018427387904], found "
                                       "4611686018427387905"));
  EXPECT_EQ(error(10, 0, 0),
            absl::InvalidArgumentError("EvaluationSampler: num_replicas: expected a positive number, found 0"));
  EXPECT_EQ(error(10, 4, 4),
            absl::InvalidArgumentError("EvaluationSampler: rank: expected a value in [0, 3], found 4"));
  EXPECT_EQ(error(10, 4, -1),
            absl::InvalidArgumentError("EvaluationSampler: rank: expected a value in [0, 3], found -1"));
}

TEST(EvaluationSampler, ThrowsValueErrorsWhereItCannotReturnAStatus) {
  EvaluationSampler sampler = Make(4);
  EXPECT_EQ(ValueErrorOf([&] { sampler.reset(std::numeric_limits<size_t>::max()); }),
            "EvaluationSampler::reset: new_size: expected a value in [0, 4611686018427387904], found "
            "18446744073709551615");
  EXPECT_EQ(ValueErrorOf([&] { sampler.next(0); }),
            "EvaluationSampler::next: expected a batch_size of at least 1, found 0");
  EXPECT_THAT(Drain(sampler), ElementsAre(0, 1, 2, 3));
}

class InADataLoader : public ::testing::TestWithParam<size_t> {};

TEST_P(InADataLoader, EveryEpochIsWholeAndRanksAreDisjoint) {
  auto loader0 = MakeLoader(Make(103, 2, 0), GetParam());
  auto loader1 = MakeLoader(Make(103, 2, 1), GetParam());
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<int64_t> first = Epoch(loader0), second = Epoch(loader1);
    ASSERT_EQ(first.size(), 52);
    ASSERT_EQ(second.size(), 51);
    for (int64_t i = 0; i < 103; ++i) EXPECT_EQ(i % 2 == 0 ? first[i / 2] : second[i / 2], i);
  }
}

TEST_P(InADataLoader, GoesOnWhereItWasSavedAndARankWithoutSamplesHasNoBatch) {
  EvaluationSampler sampler = Make(103);
  ASSERT_TRUE(sampler.next(100));
  Transfer(sampler, sampler);
  auto loader = MakeLoader(sampler, GetParam());
  EXPECT_THAT(Epoch(loader), ElementsAre(100, 101, 102));
  EXPECT_EQ(Epoch(loader), UpTo(103));
  auto without = MakeLoader(Make(103, 200, 150), GetParam());
  EXPECT_THAT(Epoch(without), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

}  // namespace
}  // namespace lockstep::sampler
