#include "lockstep/sampler/random_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <c10/core/GeneratorImpl.h>

#include <algorithm>
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
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::Epoch;
using testing::First;
using testing::HashOf;
using testing::MakeLoader;
using ::testing::SizeIs;
using testing::Transfer;
using testing::UpTo;
using testing::ValueErrorOf;

RandomSamplerOptions Options(bool replacement, std::optional<int64_t> num_samples = std::nullopt) {
  RandomSamplerOptions options;
  options.replacement = replacement;
  options.num_samples = num_samples;
  return options;
}

RandomSamplerOptions WithGenerator(uint64_t seed, RandomSamplerOptions options = {}) {
  options.generator = at::detail::createCPUGenerator(seed);
  return options;
}

RandomSampler Make(int64_t size, const RandomSamplerOptions& options) {
  return RandomSampler::Create(size, options).value();
}

std::vector<int64_t> NextEpoch(RandomSampler& sampler, size_t batch_size = 3) {
  sampler.reset();
  return Drain(sampler, batch_size);
}

int64_t NextNumber(const at::Generator& generator) {
  return at::empty({}, at::kLong).random_(generator).item<int64_t>();
}

std::vector<int64_t> Sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(RandomSampler, GivesEachIndexOncePerPassWithoutReplacement) {
  RandomSampler sampler = Make(10, WithGenerator(1, Options(false, 25)));
  EXPECT_EQ(sampler.num_samples(), 25);
  const std::vector<int64_t> indices = Drain(sampler);
  ASSERT_THAT(indices, SizeIs(25));
  EXPECT_EQ(Sorted({indices.begin(), indices.begin() + 10}), UpTo(10));
  EXPECT_EQ(Sorted({indices.begin() + 10, indices.begin() + 20}), UpTo(10));
  EXPECT_EQ(std::set<int64_t>(indices.begin() + 20, indices.end()).size(), 5);
}

TEST(RandomSampler, DrawsEveryIndexEquallyOftenWithReplacement) {
  RandomSampler sampler = Make(20, WithGenerator(1, Options(true, 20000)));
  std::map<int64_t, double> counts;
  for (const int64_t index : Drain(sampler)) ++counts[index];
  double chi_square = 0;
  for (int64_t index = 0; index < 20; ++index) chi_square += std::pow(counts[index] - 1000, 2) / 1000;
  EXPECT_LT(chi_square, 59.0);  // 19 degrees of freedom: p = 5e-6.
  EXPECT_EQ(counts.size(), 20);
}

TEST(RandomSampler, GivesPythonsOrderInEveryGoldenCase) {
  std::ifstream file("sampler/peer/random_sampler_golden.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    RandomSamplerOptions options;
    int64_t size = 0, num_samples = 0, seed = 0, epochs = 0, stop = 0, after = 0, count = 0;
    bool own_generator = false, loader = false;
    uint64_t hash = 0;
    words >> size >> num_samples >> options.replacement >> own_generator >> loader >> seed >> epochs >> stop >> after >>
        count >> hash;
    ASSERT_TRUE(words);
    if (num_samples != size) options.num_samples = num_samples;
    if (own_generator) options = WithGenerator(seed, options);
    at::manual_seed(seed);
    RandomSampler sampler = Make(size, options);
    EXPECT_EQ(sampler.num_samples(), num_samples);
    std::vector<int64_t> indices;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      if (loader) NextNumber(options.generator);
      sampler.reset();
      const bool left = epoch % 2 != 0;
      if (left && stop == 0) continue;
      const std::vector<int64_t> drawn = left ? First(sampler, stop) : Drain(sampler, 7);
      indices.insert(indices.end(), drawn.begin(), drawn.end());
    }
    EXPECT_EQ(NextNumber(options.generator), after);
    EXPECT_EQ(indices.size(), count);
    EXPECT_EQ(HashOf(indices), hash);
    const std::vector<int64_t> full{std::istream_iterator<int64_t>(words), {}};
    if (!full.empty()) {
      EXPECT_EQ(indices, full);
    }
  }
  EXPECT_EQ(cases, 235);
}

TEST(RandomSampler, WithoutAGeneratorManualSeedDecides) {
  RandomSampler sampler = Make(50, {});
  at::manual_seed(5);
  const std::vector<int64_t> first = NextEpoch(sampler), second = NextEpoch(sampler);
  EXPECT_NE(first, second);
  at::manual_seed(5);
  EXPECT_EQ(NextEpoch(sampler), first);
  EXPECT_EQ(NextEpoch(sampler), second);
}

TEST(RandomSampler, DrawsAPassWhenItIsReached) {
  const RandomSamplerOptions options = WithGenerator(3, Options(false, 4));
  RandomSampler sampler = Make(4, options);
  const at::Generator twin = at::detail::createCPUGenerator(3);
  sampler.reset();
  EXPECT_TRUE(options.generator.get_state().equal(twin.get_state()));
  ASSERT_TRUE(sampler.next(4));
  at::randperm(4, twin);
  EXPECT_TRUE(options.generator.get_state().equal(twin.get_state()));
  EXPECT_EQ(sampler.next(1), std::nullopt);
  EXPECT_EQ(sampler.next(1), std::nullopt);
  at::randperm(4, twin);
  EXPECT_TRUE(options.generator.get_state().equal(twin.get_state()));
}

TEST(RandomSampler, NeedsNoMemoryForTheSizeWithReplacement) {
  RandomSampler sampler = Make(int64_t{1} << 62, WithGenerator(1, Options(true)));
  EXPECT_EQ(sampler.num_samples(), int64_t{1} << 62);
  EXPECT_THAT(sampler.next(100), ::testing::Optional(SizeIs(100)));
}

TEST(RandomSampler, BatchesDoNotChangeTheOrder) {
  for (const bool replacement : {false, true}) {
    RandomSampler a = Make(40, WithGenerator(2, Options(replacement, 100)));
    RandomSampler b = Make(40, WithGenerator(2, Options(replacement, 100)));
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(NextEpoch(a, 1), NextEpoch(b, std::numeric_limits<size_t>::max()));
    }
  }
}

TEST(RandomSampler, CopiesShareTheGenerator) {
  RandomSampler sampler = Make(30, WithGenerator(4)), twin = Make(30, WithGenerator(4));
  RandomSampler copy = sampler;
  const std::vector<int64_t> first = Drain(twin), second = NextEpoch(twin);
  EXPECT_EQ(Drain(sampler), first);
  EXPECT_EQ(Drain(copy), second);
}

TEST(RandomSampler, ResetWithANewSizeDrawsFromThatSize) {
  RandomSampler sampler = Make(10, WithGenerator(1)), fixed = Make(10, WithGenerator(1, Options(true, 64)));
  ASSERT_TRUE(sampler.next(3));
  Transfer(sampler, sampler);
  sampler.reset(6);
  EXPECT_EQ(sampler.num_samples(), 6);
  EXPECT_EQ(Sorted(Drain(sampler)), UpTo(6));
  EXPECT_EQ(Sorted(NextEpoch(sampler)), UpTo(6));
  fixed.reset(2);
  EXPECT_EQ(fixed.num_samples(), 64);
  EXPECT_THAT(Drain(fixed), Each(::testing::Lt(2)));
}

// Saves after `consumed` indices of epoch 1, loads into a new sampler, and compares what comes next.
void ExpectToGoOn(RandomSampler sampler, RandomSampler other, int64_t consumed, bool epochs_follow) {
  SCOPED_TRACE(consumed);
  NextEpoch(sampler);
  sampler.reset();
  if (consumed > 0) First(sampler, consumed);
  Transfer(sampler, other);
  other.reset();
  EXPECT_EQ(Drain(other), Drain(sampler));
  if (!epochs_follow) return;
  EXPECT_EQ(NextEpoch(other), NextEpoch(sampler));
}

TEST(RandomSampler, GoesOnWhereItWasSavedAndTheEpochsAfterAreTheSame) {
  for (const bool replacement : {false, true}) {
    const RandomSamplerOptions options = Options(replacement, 100);
    for (const int64_t consumed : {0, 1, 31, 32, 33, 40, 80, 96, 99, 100}) {
      ExpectToGoOn(Make(40, WithGenerator(6, options)), Make(40, WithGenerator(77, options)), consumed, true);
      if (consumed > 0) ExpectToGoOn(Make(40, options), Make(40, options), consumed, false);
    }
  }
}

TEST(RandomSampler, LoadPutsBackTheCallersGenerator) {
  const RandomSamplerOptions options = WithGenerator(6), others = WithGenerator(7);
  RandomSampler sampler = Make(10, options), other = Make(10, others);
  ASSERT_TRUE(sampler.next(4));
  Transfer(sampler, other);
  EXPECT_EQ(NextNumber(others.generator), NextNumber(options.generator));
}

TEST(RandomSampler, ALoadedPlaceIsUsedOnce) {
  RandomSampler sampler = Make(10, WithGenerator(6)), other = Make(10, WithGenerator(7));
  ASSERT_TRUE(sampler.next(4));
  Transfer(sampler, other);
  EXPECT_THAT(Drain(other), SizeIs(6));
  EXPECT_THAT(NextEpoch(other), SizeIs(10));
  Transfer(sampler, other);
  other.reset();
  other.reset();
  EXPECT_THAT(Drain(other), SizeIs(10));
}

TEST(RandomSampler, BeforeTheFirstEpochWithoutAGeneratorThereIsNothingToRestore) {
  RandomSampler sampler = Make(30, {}), other = Make(30, {});
  ASSERT_TRUE(other.next(4));
  Transfer(sampler, other);
  at::manual_seed(8);
  const std::vector<int64_t> indices = Drain(sampler);
  at::manual_seed(8);
  EXPECT_EQ(Drain(other), indices);
}

TEST(RandomSampler, LoadNamesWhatDiffersAndChangesNothing) {
  RandomSampler sampler = Make(10, WithGenerator(6));
  ASSERT_TRUE(sampler.next(4));
  const auto error = [&](int64_t size, RandomSamplerOptions options) {
    RandomSampler other = Make(size, options);
    const std::string message = ValueErrorOf([&] { Transfer(sampler, other); });
    EXPECT_THAT(Drain(other), SizeIs(other.num_samples()));
    return message;
  };
  EXPECT_EQ(error(11, WithGenerator(6)), "RandomSampler::load: size: expected 11, found 10");
  EXPECT_EQ(error(10, WithGenerator(6, Options(false, 20))), "RandomSampler::load: num_samples: expected 20, found 10");
  EXPECT_EQ(error(10, WithGenerator(6, Options(true))), "RandomSampler::load: replacement: expected true, found false");
  EXPECT_EQ(error(10, {}), "RandomSampler::load: has_generator: expected false, found true");
}

// A generator of no CPU.
class MetaGenerator : public c10::GeneratorImpl {
 public:
  MetaGenerator() : c10::GeneratorImpl(at::kMeta, c10::DispatchKeySet()) {}
  void set_current_seed(uint64_t) override {}
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return 0; }
  uint64_t seed() override { return 0; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }

 private:
  MetaGenerator* clone_impl() const override { return nullptr; }
};

TEST(RandomSampler, CreateNamesWhatIsWrong) {
  const auto error = [](int64_t size, const RandomSamplerOptions& options) {
    return RandomSampler::Create(size, options).status();
  };
  EXPECT_EQ(error(0, {}),
            absl::InvalidArgumentError("RandomSampler: size: expected a value in [1, 4611686018427387904], found 0"));
  EXPECT_EQ(error((int64_t{1} << 62) + 1, Options(false, 3)),
            absl::InvalidArgumentError("RandomSampler: size: expected a value in [1, 4611686018427387904], found "
                                       "4611686018427387905"));
  EXPECT_EQ(
      error(10, Options(true, 0)),
      absl::InvalidArgumentError("RandomSampler: num_samples: expected a value in [1, 4611686018427387904], found 0"));
  RandomSamplerOptions meta;
  meta.generator = at::make_generator<MetaGenerator>();
  EXPECT_EQ(error(10, meta),
            absl::InvalidArgumentError("RandomSampler: generator: expected one of cpu, found one of meta"));
}

TEST(RandomSampler, ThrowsValueErrorsWhereItCannotReturnAStatus) {
  RandomSampler sampler = Make(4, WithGenerator(1));
  EXPECT_EQ(ValueErrorOf([&] { sampler.reset(0); }),
            "RandomSampler::reset: new_size: expected a value in [1, 4611686018427387904], found 0");
  EXPECT_EQ(ValueErrorOf([&] { sampler.next(0); }),
            "RandomSampler::next: expected a batch_size of at least 1, found 0");
  EXPECT_THAT(Drain(sampler), SizeIs(4));
}

class InADataLoader : public ::testing::TestWithParam<size_t> {};

TEST_P(InADataLoader, EveryEpochGoesOnWithTheGenerator) {
  RandomSampler twin = Make(103, WithGenerator(9));
  auto loader = MakeLoader(Make(103, WithGenerator(9)), GetParam());
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(Epoch(loader), NextEpoch(twin));
}

TEST_P(InADataLoader, GoesOnWhereItWasSaved) {
  RandomSampler sampler = Make(103, WithGenerator(9)), other = Make(103, WithGenerator(1));
  ASSERT_TRUE(sampler.next(50));
  Transfer(sampler, other);
  auto loader = MakeLoader(other, GetParam());
  EXPECT_EQ(Epoch(loader), Drain(sampler));
  EXPECT_EQ(Epoch(loader), NextEpoch(sampler));
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

}  // namespace
}  // namespace lockstep::sampler
