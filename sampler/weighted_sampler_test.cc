#include "lockstep/sampler/weighted_sampler.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using testing::Epoch;
using testing::HashOf;
using testing::Identity;
using testing::MakeLoader;
using ::testing::SizeIs;
using testing::Transfer;
using testing::ValueErrorOf;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

WeightedSamplerOptions Options(int64_t num_replicas = 1, int64_t rank = 0, bool replacement = true) {
  WeightedSamplerOptions options;
  options.num_replicas = num_replicas;
  options.rank = rank;
  options.replacement = replacement;
  return options;
}

WeightedSampler Make(const std::vector<double>& weights, int64_t num_samples, const WeightedSamplerOptions& options) {
  return WeightedSampler::Create(weights, num_samples, options).value();
}

// Weights 1, 2, ..., 103, as many as Identity has samples.
std::vector<double> Rising() {
  std::vector<double> weights;
  for (int i = 1; i <= 103; ++i) weights.push_back(i);
  return weights;
}

std::vector<int64_t> EpochOf(WeightedSampler sampler, int64_t epoch) {
  sampler.set_epoch(epoch);
  sampler.reset();
  return Drain(sampler);
}

TEST(WeightedSampler, DrawsByWeight) {
  const std::vector<double> weights = {1, 0, 3, 0.5, 2.5, 0, 3};
  WeightedSampler sampler = Make(weights, 100000, Options());
  std::vector<double> counts(weights.size());
  for (const int64_t index : Drain(sampler)) ++counts.at(index);
  double chi_square = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) {
      EXPECT_EQ(counts[i], 0);
      continue;
    }
    const double expected = 100000 * weights[i] / 10;
    chi_square += std::pow(counts[i] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 30.7);  // 4 degrees of freedom: p = 3.5e-6.
}

TEST(WeightedSampler, WithoutReplacementDrawsEachIndexAboveZeroOnce) {
  const std::vector<double> weights = {1, 0, 30, 1e-9, 2, 0};
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<int64_t> indices = EpochOf(Make(weights, 4, Options(1, 0, false)), epoch);
    EXPECT_THAT(indices, ::testing::UnorderedElementsAre(0, 2, 3, 4));
  }
}

TEST(WeightedSampler, RanksTakeTurnsInWhatOneWouldDraw) {
  const std::vector<int64_t> all = EpochOf(Make(Rising(), 10, Options()), 2);
  for (int64_t rank = 0; rank < 4; ++rank) {
    WeightedSampler sampler = Make(Rising(), 10, Options(4, rank));
    EXPECT_EQ(sampler.num_samples(), 3);
    EXPECT_EQ(sampler.total_size(), 12);
    const std::vector<int64_t> indices = EpochOf(sampler, 2);
    ASSERT_THAT(indices, SizeIs(3));
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(indices[i], all[(rank + 4 * i) % 10]);  // The last two repeat the first.
  }
}

TEST(WeightedSampler, GivesPythonsOrderInEveryGoldenCase) {
  std::ifstream file("sampler/peer/weighted_sampler_golden.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    WeightedSamplerOptions options;
    int64_t num_samples = 0, epoch = 0, count = 0;
    size_t number_of_weights = 0;
    uint64_t hash = 0;
    words >> num_samples >> options.num_replicas >> options.rank >> options.replacement >> options.seed >> epoch >>
        number_of_weights;
    std::vector<double> weights(number_of_weights);
    for (double& weight : weights) words >> weight;
    words >> count >> hash;
    ASSERT_TRUE(words);
    WeightedSampler sampler = Make(weights, num_samples, options);
    EXPECT_EQ(sampler.num_samples(), count);
    const std::vector<int64_t> indices = EpochOf(sampler, epoch);
    EXPECT_EQ(HashOf(indices), hash);
    const std::vector<int64_t> full{std::istream_iterator<int64_t>(words), {}};
    if (!full.empty()) {
      EXPECT_EQ(indices, full);
    }
  }
  EXPECT_EQ(cases, 200);
}

TEST(WeightedSampler, WorksWithoutAReset) {
  WeightedSampler sampler = Make(Rising(), 50, Options());
  EXPECT_EQ(Drain(sampler), EpochOf(sampler, 0));
}

TEST(WeightedSampler, GivesAShortLastBatchThenNothingUntilReset) {
  WeightedSampler sampler = Make(Rising(), 5, Options());
  EXPECT_THAT(sampler.next(3), ::testing::Optional(SizeIs(3)));
  EXPECT_THAT(sampler.next(3), ::testing::Optional(SizeIs(2)));
  EXPECT_EQ(sampler.next(3), std::nullopt);
  EXPECT_EQ(sampler.next(3), std::nullopt);
  sampler.reset();
  EXPECT_THAT(sampler.next(std::numeric_limits<size_t>::max()), ::testing::Optional(SizeIs(5)));
}

TEST(WeightedSampler, SetEpochTakesEffectAtTheNextResetOfAnyCopy) {
  WeightedSampler sampler = Make(Rising(), 50, Options());
  WeightedSampler copy = sampler;
  const std::vector<int64_t> epoch0 = EpochOf(sampler, 0), epoch1 = EpochOf(sampler, 1);
  EXPECT_NE(epoch0, epoch1);
  sampler.set_epoch(0);
  copy.reset();
  sampler.set_epoch(1);
  EXPECT_EQ(copy.epoch(), 1);
  EXPECT_EQ(Drain(copy), epoch0);
  copy.reset();
  EXPECT_EQ(Drain(copy), epoch1);
}

TEST(WeightedSampler, SetEpochIsSafeBesideAnotherCopysReset) {
  WeightedSampler sampler = Make(Rising(), 20, Options());
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 8; ++epoch) orders.insert(EpochOf(sampler, epoch));
  std::atomic<bool> done{false};
  std::thread setter([&, copy = sampler]() mutable {
    for (int64_t i = 0; !done; ++i) copy.set_epoch(i % 8);
  });
  for (int i = 0; i < 200; ++i) {
    WeightedSampler saved = Make(Rising(), 20, Options());
    sampler.reset();
    Transfer(sampler, saved);
    const std::vector<int64_t> order = Drain(sampler);
    EXPECT_EQ(orders.count(order), 1);
    EXPECT_EQ(Drain(saved), order);  // save() writes the epoch that was drawn.
  }
  done = true;
  setter.join();
}

TEST(WeightedSampler, RestoreGoesOnInMidEpochOnce) {
  const std::vector<int64_t> whole = EpochOf(Make(Rising(), 50, Options(2, 1)), 3);
  WeightedSampler sampler = Make(Rising(), 50, Options(2, 0)), other = Make(Rising(), 50, Options(2, 1));
  sampler.set_epoch(3);
  ASSERT_TRUE(other.next(2));
  ASSERT_TRUE(other.Restore(sampler.State(4)).ok());
  EXPECT_EQ(other.epoch(), 3);
  EXPECT_EQ(Drain(other), std::vector<int64_t>(whole.begin() + 4, whole.end()));
  other.reset();
  EXPECT_EQ(Drain(other), whole);
}

TEST(WeightedSampler, RestoreGoesOnOnAnotherNumberOfRanks) {
  const std::vector<int64_t> all = EpochOf(Make(Rising(), 50, Options()), 0);
  const SamplerState state = Make(Rising(), 50, Options(2, 0)).State(10);
  for (int64_t rank = 0; rank < 3; ++rank) {
    WeightedSampler sampler = Make(Rising(), 50, Options(3, rank));
    ASSERT_TRUE(sampler.Restore(state).ok());
    EXPECT_EQ(sampler.num_remaining(), 10);
    const std::vector<int64_t> rest = Drain(sampler);
    ASSERT_THAT(rest, SizeIs(10));
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(rest[i], all[20 + rank + 3 * i]);
  }
}

TEST(WeightedSampler, RestoreNamesWhatDiffers) {
  WeightedSampler sampler = Make(Rising(), 50, Options());
  EXPECT_EQ(sampler.Restore(Make(Rising(), 40, Options()).State(3)),
            absl::InvalidArgumentError("WeightedSampler: DistributedSampler::Restore: size: expected 50, found 40"));
}

TEST(WeightedSampler, AnArchiveKeepsWhatNextHasGiven) {
  WeightedSampler sampler = Make(Rising(), 50, Options()), other = Make(Rising(), 50, Options());
  sampler.set_epoch(5);
  ASSERT_TRUE(sampler.next(7));
  ASSERT_TRUE(other.next(9));
  sampler.set_epoch(6);  // The epoch under way is still 5.
  Transfer(sampler, other);
  EXPECT_EQ(other.epoch(), 5);
  const std::vector<int64_t> rest = Drain(sampler);
  EXPECT_THAT(rest, SizeIs(43));
  EXPECT_EQ(Drain(other), rest);
}

TEST(WeightedSampler, CreateNamesWhatIsWrong) {
  const auto error = [](const std::vector<double>& weights, int64_t num_samples = 1,
                        WeightedSamplerOptions options = {}) {
    const absl::Status status = WeightedSampler::Create(weights, num_samples, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error({}), "WeightedSampler: weights: expected one or more, found 0");
  EXPECT_EQ(error({1, -0.5}), "WeightedSampler: weights[1]: expected a finite number of at least 0, found -0.5");
  EXPECT_EQ(error({1, 1, std::nan("")}),
            "WeightedSampler: weights[2]: expected a finite number of at least 0, found nan");
  EXPECT_EQ(error({kInfinity, 1}), "WeightedSampler: weights[0]: expected a finite number of at least 0, found inf");
  EXPECT_EQ(error({0, 0}), "WeightedSampler: weights: expected a finite sum above 0, found 0");
  EXPECT_EQ(error({1e308, 1e308}), "WeightedSampler: weights: expected a finite sum above 0, found inf");
  EXPECT_EQ(error({1, 2}, 0), "WeightedSampler: num_samples: expected a value in [1, 4611686018427387904], found 0");
  EXPECT_EQ(error({1, 0, 2}, 3, Options(1, 0, false)),
            "WeightedSampler: num_samples: expected without replacement at most 2, the number of weights above 0, "
            "found 3");
  EXPECT_EQ(error({1, 2}, 2, Options(0, 0)), "WeightedSampler: num_replicas: expected a positive number, found 0");
  EXPECT_EQ(error({1, 2}, 2, Options(2, 2)), "WeightedSampler: rank: expected a value in [0, 1], found 2");
}

// at::multinomial, and so Python's sampler, refuses more than 2^24 weights.
TEST(WeightedSampler, DrawsByMoreWeightsThanMultinomialTakes) {
  constexpr int64_t kSize = (int64_t{1} << 24) + 3;
  std::vector<double> weights(kSize, 0.0);
  weights[5] = 1;
  weights[kSize - 3] = 2;
  weights[kSize - 1] = 5;
  std::map<int64_t, int> counts;
  WeightedSampler sampler = Make(weights, 8000, Options());
  for (const int64_t index : Drain(sampler)) ++counts[index];
  EXPECT_THAT(counts, ::testing::SizeIs(3));
  EXPECT_NEAR(counts[5], 1000, 150);  // five standard deviations
  EXPECT_NEAR(counts[kSize - 3], 2000, 195);
  EXPECT_NEAR(counts[kSize - 1], 5000, 217);

  WeightedSampler once = Make(weights, 3, Options(1, 0, /*replacement=*/false));
  EXPECT_THAT(Drain(once), ::testing::UnorderedElementsAre(5, kSize - 3, kSize - 1));
}

TEST(WeightedSampler, ThrowsValueErrorsWhereItCannotReturnAStatus) {
  WeightedSampler sampler = Make({1, 2, 3}, 10, Options());
  EXPECT_EQ(ValueErrorOf([&] { sampler.reset(4); }), "WeightedSampler::reset: new_size: expected 3, found 4");
  EXPECT_EQ(ValueErrorOf([&] { sampler.next(0); }),
            "WeightedSampler::next: expected a batch_size of at least 1, found 0");
  sampler.reset(3);
  EXPECT_THAT(Drain(sampler), SizeIs(10));
}

class InADataLoader : public ::testing::TestWithParam<size_t> {};

TEST_P(InADataLoader, SetEpochAndRestoreReachTheCopyInside) {
  WeightedSampler sampler = Make(Rising(), 60, Options(2, 1));
  auto loader = MakeLoader(sampler, GetParam());
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    EXPECT_EQ(Epoch(loader), EpochOf(sampler, epoch));
  }
  const std::vector<int64_t> whole = EpochOf(sampler, 2);
  ASSERT_TRUE(sampler.Restore(sampler.State(8)).ok());
  EXPECT_EQ(Epoch(loader), std::vector<int64_t>(whole.begin() + 8, whole.end()));
  EXPECT_EQ(Epoch(loader), whole);
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

}  // namespace
}  // namespace lockstep::sampler
