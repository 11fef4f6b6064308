#include "lockstep/sampler/distributed_sampler.h"

#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/internal/archive.h"
#include "lockstep/sampler/testing/samplers.h"
#include "lockstep/sampler/torch_sampler.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using ::testing::ElementsAre;
using testing::Epoch;
using testing::HashOf;
using ::testing::IsEmpty;
using testing::MakeLoader;
using testing::Transfer;
using testing::UpTo;
using testing::ValueErrorOf;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

DistributedSamplerOptions Options(int64_t num_replicas, int64_t rank, bool shuffle = true, bool drop_last = false) {
  DistributedSamplerOptions options;
  options.num_replicas = num_replicas;
  options.rank = rank;
  options.shuffle = shuffle;
  options.drop_last = drop_last;
  return options;
}

DistributedSampler Make(int64_t size, DistributedSamplerOptions options) {
  return DistributedSampler::Create(size, options).value();
}

// All ranks' indices in the order they were dealt out.
std::vector<int64_t> Interleaved(int64_t size, int64_t num_replicas, bool shuffle, bool drop_last) {
  std::vector<std::vector<int64_t>> ranks;
  for (int64_t rank = 0; rank < num_replicas; ++rank) {
    ranks.push_back(Make(size, Options(num_replicas, rank, shuffle, drop_last)).Indices());
  }
  std::vector<int64_t> all;
  for (size_t i = 0; i < ranks[0].size(); ++i) {
    for (const std::vector<int64_t>& rank : ranks) all.push_back(rank.at(i));
  }
  return all;
}

std::vector<int64_t> Sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(DistributedSampler, DealsEachIndexToOneRank) {
  for (const int64_t num_replicas : {1, 2, 3, 5}) {
    for (const bool shuffle : {false, true}) {
      EXPECT_EQ(Sorted(Interleaved(30, num_replicas, shuffle, /*drop_last=*/false)), UpTo(30));
    }
  }
}

TEST(DistributedSampler, StridesByRankWithoutShuffle) {
  EXPECT_THAT(Make(8, Options(2, 0, false)).Indices(), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(Make(8, Options(2, 1, false)).Indices(), ElementsAre(1, 3, 5, 7));
}

TEST(DistributedSampler, PadsByRepeatingFromTheStart) {
  EXPECT_THAT(Interleaved(7, 3, false, false), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 1));
  const std::vector<int64_t> shuffled = Interleaved(7, 3, true, false);
  ASSERT_EQ(shuffled.size(), 9);
  EXPECT_EQ(Sorted({shuffled.begin(), shuffled.begin() + 7}), UpTo(7));
  EXPECT_EQ(shuffled[7], shuffled[0]);
  EXPECT_EQ(shuffled[8], shuffled[1]);
}

TEST(DistributedSampler, RepeatsAsOftenAsMoreRanksThanSamplesNeed) {
  EXPECT_THAT(Interleaved(3, 8, false, false), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
  EXPECT_THAT(Interleaved(1, 4, true, false), ElementsAre(0, 0, 0, 0));
}

TEST(DistributedSampler, DropLastLeavesOutTheUnevenTail) {
  EXPECT_THAT(Interleaved(8, 3, false, true), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Interleaved(9, 3, false, true), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  const std::vector<int64_t> shuffled = Interleaved(8, 3, true, true);
  EXPECT_EQ(std::set<int64_t>(shuffled.begin(), shuffled.end()).size(), 6);
}

TEST(DistributedSampler, DropLastLeavesNothingForMoreRanksThanSamples) {
  DistributedSampler sampler = Make(3, Options(8, 1, true, true));
  EXPECT_EQ(sampler.num_samples(), 0);
  EXPECT_EQ(sampler.total_size(), 0);
  EXPECT_THAT(sampler.Indices(), IsEmpty());
  EXPECT_EQ(sampler.next(4), std::nullopt);
}

TEST(DistributedSampler, SizesDoNotOverflowAtTheLimits) {
  EXPECT_EQ(Make(int64_t{1} << 62, Options(1, 0)).total_size(), int64_t{1} << 62);
  EXPECT_EQ(Make(int64_t{1} << 62, Options((int64_t{1} << 62) - 1, 0)).total_size(), kMax - 1);
  EXPECT_EQ(Make(int64_t{1} << 62, Options(kMax, kMax - 1)).total_size(), kMax);
  EXPECT_THAT(Make(10, Options(kMax, kMax - 1, false)).Indices(), ElementsAre((kMax - 1) % 10));
}

TEST(DistributedSampler, NeedsNoMemoryForTheOrderWithoutShuffle) {
  DistributedSampler sampler = Make(int64_t{1} << 62, Options(2, 1, false));
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(1, 3, 5)));
}

TEST(DistributedSampler, GivesPythonsOrderInEveryGoldenCase) {
  std::ifstream file("sampler/peer/distributed_sampler_golden.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    DistributedSamplerOptions options;
    int64_t size = 0, epoch = 0, num_samples = 0, total_size = 0;
    uint64_t hash = 0;
    words >> size >> options.num_replicas >> options.rank >> options.seed >> epoch >> options.shuffle >>
        options.drop_last >> num_samples >> total_size >> hash;
    ASSERT_TRUE(words);
    DistributedSampler sampler = Make(size, options);
    sampler.set_epoch(epoch);
    EXPECT_EQ(sampler.num_samples(), num_samples);
    EXPECT_EQ(sampler.total_size(), total_size);
    const std::vector<int64_t> indices = sampler.Indices();
    EXPECT_EQ(HashOf(indices), hash);
    const std::vector<int64_t> full{std::istream_iterator<int64_t>(words), {}};
    if (!full.empty()) {
      EXPECT_EQ(indices, full);
    }
    EXPECT_EQ(Drain(sampler, 7), indices);
  }
  EXPECT_EQ(cases, 3046);
}

TEST(DistributedSampler, WorksWithoutAReset) {
  DistributedSampler sampler = Make(10, Options(2, 1));
  EXPECT_EQ(Drain(sampler), sampler.Indices());
}

TEST(DistributedSampler, GivesAShortLastBatchThenNothingUntilReset) {
  DistributedSampler sampler = Make(5, Options(1, 0, false));
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(0, 1, 2)));
  EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(3, 4)));
  EXPECT_EQ(sampler.next(3), std::nullopt);
  EXPECT_EQ(sampler.next(3), std::nullopt);
  sampler.reset();
  EXPECT_THAT(sampler.next(std::numeric_limits<size_t>::max()), ::testing::Optional(ElementsAre(0, 1, 2, 3, 4)));
}

TEST(DistributedSampler, SetEpochTakesEffectAtTheNextReset) {
  DistributedSampler sampler = Make(100, Options(2, 0));
  const std::vector<int64_t> epoch0 = sampler.Indices();
  sampler.reset();
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.epoch(), 1);
  EXPECT_EQ(Drain(sampler), epoch0);
  sampler.reset();
  const std::vector<int64_t> epoch1 = Drain(sampler);
  EXPECT_NE(epoch1, epoch0);
  EXPECT_EQ(epoch1, sampler.Indices());
}

TEST(DistributedSampler, CopiesShareTheEpochAndNotThePosition) {
  DistributedSampler sampler = Make(100, Options(2, 0));
  DistributedSampler copy = sampler;
  ASSERT_TRUE(sampler.next(10));
  sampler.set_epoch(4);
  EXPECT_EQ(copy.epoch(), 4);
  EXPECT_EQ(Drain(copy), sampler.Indices());
}

TEST(DistributedSampler, SetEpochIsSafeBesideAnotherCopysReset) {
  DistributedSampler sampler = Make(64, Options(1, 0));
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    sampler.set_epoch(epoch);
    orders.insert(sampler.Indices());
  }
  std::atomic<bool> done{false};
  std::thread setter([&, copy = sampler]() mutable {
    for (int64_t i = 0; !done; ++i) copy.set_epoch(i % 8);
  });
  for (int i = 0; i < 200; ++i) {
    sampler.reset();
    EXPECT_EQ(orders.count(Drain(sampler)), 1);
  }
  done = true;
  setter.join();
}

TEST(DistributedSampler, ResetWithANewSizeDealsThatSizeOut) {
  DistributedSampler sampler = Make(10, Options(2, 1, false));
  ASSERT_TRUE(sampler.Restore(sampler.State(3)).ok());
  sampler.reset(7);
  EXPECT_EQ(sampler.num_samples(), 4);
  EXPECT_THAT(Drain(sampler), ElementsAre(1, 3, 5, 0));
  sampler.reset();
  EXPECT_THAT(Drain(sampler), ElementsAre(1, 3, 5, 0));
  EXPECT_EQ(sampler.State(0).size, 7);
}

TEST(DistributedSampler, ARestoredPositionIsNotUsedByACopyOfAnotherSize) {
  DistributedSampler sampler = Make(10, Options(1, 0, false));
  DistributedSampler smaller = sampler;
  smaller.reset(4);
  ASSERT_TRUE(sampler.Restore(sampler.State(9)).ok());
  smaller.reset();
  EXPECT_THAT(Drain(smaller), ElementsAre(0, 1, 2, 3));
}

TEST(DistributedSampler, RestoreGoesOnInMidEpochOnce) {
  DistributedSampler sampler = Make(20, Options(2, 1));
  sampler.set_epoch(3);
  const std::vector<int64_t> whole = sampler.Indices();
  const SamplerState state = sampler.State(4);

  DistributedSampler other = Make(20, Options(2, 1));
  ASSERT_TRUE(other.Restore(state).ok());
  EXPECT_EQ(other.epoch(), 3);
  other.set_epoch(3);  // As a training loop does.
  EXPECT_EQ(other.Indices(), whole);
  other.reset();
  EXPECT_EQ(Drain(other), std::vector<int64_t>(whole.begin() + 4, whole.end()));
  other.reset();
  EXPECT_EQ(Drain(other), whole);
}

TEST(DistributedSampler, RestoreNeedsNoResetInTheSameCopy) {
  DistributedSampler sampler = Make(6, Options(1, 0, false));
  ASSERT_TRUE(sampler.next(5));
  ASSERT_TRUE(sampler.Restore(sampler.State(2)).ok());
  EXPECT_THAT(Drain(sampler), ElementsAre(2, 3, 4, 5));
}

TEST(DistributedSampler, AFinishedEpochIsRestoredAsFinishedAndTheNextOneIsWhole) {
  DistributedSampler sampler = Make(6, Options(1, 0, false));
  const SamplerState finished = sampler.State(6);
  ASSERT_TRUE(sampler.Restore(finished).ok());
  sampler.reset();
  EXPECT_EQ(sampler.next(1), std::nullopt);
  EXPECT_EQ(sampler.State(0), finished);
  ASSERT_TRUE(sampler.Restore(finished).ok());
  sampler.set_epoch(1);
  sampler.reset();
  EXPECT_EQ(Drain(sampler).size(), 6);
}

TEST(DistributedSampler, OneRanksStateServesEveryRank) {
  const SamplerState state = Make(20, Options(2, 0)).State(4);
  DistributedSampler rank1 = Make(20, Options(2, 1));
  const std::vector<int64_t> whole = rank1.Indices();
  ASSERT_TRUE(rank1.Restore(state).ok());
  EXPECT_EQ(Drain(rank1), std::vector<int64_t>(whole.begin() + 4, whole.end()));
}

TEST(DistributedSampler, AnArchiveKeepsWhatNextHasGiven) {
  DistributedSampler sampler = Make(20, Options(2, 1));
  sampler.set_epoch(5);
  ASSERT_TRUE(sampler.next(3));
  sampler.set_epoch(6);  // The epoch under way is still 5.
  DistributedSampler other = Make(20, Options(2, 1));
  Transfer(sampler, other);
  EXPECT_EQ(other.epoch(), 5);
  EXPECT_EQ(Drain(other), Drain(sampler));

  DistributedSampler smaller = Make(19, Options(2, 1));
  EXPECT_EQ(ValueErrorOf([&] { Transfer(sampler, smaller); }),
            "DistributedSampler::Restore: size: expected 19, found 20");
}

TEST(DistributedSampler, AnArchiveKeepsAPositionThatIsNotYetUsed) {
  DistributedSampler sampler = Make(6, Options(1, 0, false));
  ASSERT_TRUE(sampler.Restore(sampler.State(4)).ok());
  DistributedSampler other = Make(6, Options(1, 0, false));
  Transfer(sampler, other);
  EXPECT_THAT(Drain(other), ElementsAre(4, 5));
}

TEST(DistributedSampler, NamesWhatAnArchiveLacks) {
  torch::serialize::OutputArchive out;
  out.write("size", int64_t{6});
  out.write("num_replicas", true);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  const auto error = [](auto load) {
    try {
      load();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("nothing was thrown");
  };
  DistributedSampler sampler = Make(6, Options(1, 0));
  EXPECT_EQ(error([&] { TorchSampler(sampler).load(in); }),
            "a sampler's archive: num_replicas: expected Int, found Bool");
  EXPECT_EQ(error([&] { internal::ReadBool(in, "shuffle"); }),
            "a sampler's archive: shuffle: expected Bool, found None");
  EXPECT_EQ(Drain(sampler).size(), 6);
}

TEST(DistributedSampler, GivesNothingOfAnEmptyDataset) {
  for (int i = 0; i < 16; ++i) {
    DistributedSamplerOptions options = Options(1 + i % 2 * 2, i % 2 * 2, (i & 2) != 0, (i & 4) != 0);
    options.permutation = (i & 8) != 0 ? Permutation::kFeistel : Permutation::kTorch;
    DistributedSampler sampler = Make(0, options);
    EXPECT_EQ(sampler.num_samples(), 0);
    EXPECT_EQ(sampler.total_size(), 0);
    EXPECT_THAT(sampler.Indices(), ElementsAre());
    for (int epoch = 0; epoch < 2; ++epoch) {
      sampler.set_epoch(epoch);
      EXPECT_THAT(Drain(sampler), ElementsAre());
    }
    const SamplerState state = sampler.State(0);
    EXPECT_EQ(sampler.Restore(state), absl::OkStatus());
    EXPECT_EQ(sampler.num_remaining(), 0);
    EXPECT_EQ(sampler.next(4), std::nullopt);
  }
}

TEST(DistributedSampler, ADatasetMayBecomeEmptyAndGrowAgain) {
  DistributedSampler sampler = Make(4, Options(2, 1, false));
  sampler.reset(0);
  EXPECT_EQ(sampler.next(4), std::nullopt);
  sampler.reset(3);
  EXPECT_THAT(sampler.next(4), ::testing::Optional(ElementsAre(1, 0)));
}

TEST(DistributedSampler, CreateNamesWhatIsWrong) {
  const auto error = [](int64_t size, int64_t num_replicas, int64_t rank) {
    return DistributedSampler::Create(size, Options(num_replicas, rank)).status();
  };
  EXPECT_EQ(error(-5, 1, 0), absl::InvalidArgumentError(
                                 "DistributedSampler: size: expected a value in [0, 4611686018427387904], found -5"));
  EXPECT_EQ(error((int64_t{1} << 62) + 1, 1, 0),
            absl::InvalidArgumentError("DistributedSampler: size: expected a value in [0, 4611686018427387904], found "
                                       "4611686018427387905"));
  EXPECT_EQ(error(10, 0, 0),
            absl::InvalidArgumentError("DistributedSampler: num_replicas: expected a positive number, found 0"));
  EXPECT_EQ(error(10, 4, 4),
            absl::InvalidArgumentError("DistributedSampler: rank: expected a value in [0, 3], found 4"));
  EXPECT_EQ(error(10, 4, -1),
            absl::InvalidArgumentError("DistributedSampler: rank: expected a value in [0, 3], found -1"));
}

TEST(DistributedSampler, RestoreNamesWhatDiffersAndChangesNothing) {
  DistributedSampler sampler = Make(100, Options(2, 0));
  const SamplerState good = sampler.State(7);
  const auto error = [&](auto field, auto value) {
    SamplerState state = good;
    state.*field = value;
    const absl::Status status = sampler.Restore(state);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error(&SamplerState::size, 90), "DistributedSampler::Restore: size: expected 100, found 90");
  EXPECT_EQ(error(&SamplerState::num_replicas, 0),
            "DistributedSampler: num_replicas: expected a positive number, found 0");
  EXPECT_EQ(error(&SamplerState::seed, -1), "DistributedSampler::Restore: seed: expected 0, found -1");
  EXPECT_EQ(error(&SamplerState::shuffle, false), "DistributedSampler::Restore: shuffle: expected true, found false");
  EXPECT_EQ(error(&SamplerState::drop_last, true),
            "DistributedSampler::Restore: drop_last: expected false, found true");
  EXPECT_EQ(error(&SamplerState::permutation, Permutation::kFeistel),
            "DistributedSampler::Restore: permutation: expected torch, found feistel");
  EXPECT_EQ(error(&SamplerState::epoch, -2),
            "DistributedSampler: epoch: expected a value in [0, 9223372036854775807], found -2");
  EXPECT_EQ(error(&SamplerState::consumed, 101),
            "DistributedSampler: consumed: expected a value in [0, 100], found 101");
  EXPECT_EQ(sampler.epoch(), 0);
  EXPECT_EQ(Drain(sampler).size(), 50);
}

TEST(DistributedSampler, ThrowsValueErrorsWhereItCannotReturnAStatus) {
  DistributedSampler sampler = Make(100, Options(2, 0));
  EXPECT_EQ(ValueErrorOf([&] { sampler.set_epoch(-1); }),
            "DistributedSampler::set_epoch: expected an epoch of at least 0, found -1");
  EXPECT_EQ(ValueErrorOf([&] { sampler.reset(std::numeric_limits<size_t>::max()); }),
            "DistributedSampler::reset: new_size: expected a value in [0, 4611686018427387904], found "
            "18446744073709551615");
  EXPECT_EQ(ValueErrorOf([&] { sampler.next(0); }),
            "DistributedSampler::next: expected a batch_size of at least 1, found 0");
  EXPECT_EQ(ValueErrorOf([&] { sampler.State(51); }),
            "DistributedSampler: consumed: expected a value in [0, 50], found 51");
  EXPECT_EQ(Drain(sampler).size(), 50);
}

TEST(DistributedSampler, IteratesIndexByIndex) {
  DistributedSampler sampler = Make(11, Options(2, 1));
  EXPECT_EQ(std::vector<int64_t>(sampler.begin(), sampler.end()), sampler.Indices());
  ASSERT_TRUE(sampler.Restore(sampler.State(4)).ok());
  std::vector<int64_t> rest;
  for (const int64_t index : sampler) rest.push_back(index);
  const std::vector<int64_t> whole = sampler.Indices();
  EXPECT_EQ(rest, std::vector<int64_t>(whole.begin() + 4, whole.end()));
}

TEST(DistributedSampler, FeistelDealsEachIndexToOneRankInAnotherOrderEveryEpoch) {
  DistributedSamplerOptions options = Options(1, 0);
  options.permutation = Permutation::kFeistel;
  DistributedSampler all = Make(1003, options);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    all.set_epoch(epoch);
    orders.insert(all.Indices());
    EXPECT_EQ(Sorted(all.Indices()), UpTo(1003));
  }
  EXPECT_EQ(orders.size(), 3);

  options.num_replicas = 4;
  const std::vector<int64_t> order = all.Indices();
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    DistributedSampler sampler = Make(1003, options);
    sampler.set_epoch(2);
    std::vector<int64_t> share;
    for (int64_t i = options.rank; i < 1004; i += 4) share.push_back(order[i % 1003]);
    EXPECT_EQ(Drain(sampler, 9), share);
  }
}

TEST(DistributedSampler, FeistelShufflesAnySizeAtOnce) {
  DistributedSamplerOptions options = Options(8, 7);
  options.permutation = Permutation::kFeistel;
  constexpr int64_t kSize = int64_t{1} << 62;
  DistributedSampler sampler = Make(kSize, options);
  const std::vector<size_t> first = sampler.next(1000).value();
  EXPECT_EQ(std::set<size_t>(first.begin(), first.end()).size(), 1000);
  ASSERT_TRUE(sampler.Restore(sampler.State(sampler.num_samples() - 2)).ok());
  const std::vector<size_t> last = sampler.next(1000).value();
  ASSERT_EQ(last.size(), 2);
  for (const size_t index : last) EXPECT_LT(index, kSize);
}

TEST(DistributedSampler, ThrowsWhereATorchOrderFindsNoMemory) {
  DistributedSampler sampler = Make(int64_t{1} << 62, Options(8, 7));
  EXPECT_THROW(sampler.next(1), std::bad_alloc);
}

TEST(DistributedSampler, ARestoredPlaceIsStillThereAfterAResetWithoutMemory) {
  DistributedSampler sampler = Make(int64_t{1} << 62, Options(8, 7));
  const SamplerState state = sampler.State(5);
  ASSERT_TRUE(sampler.Restore(state).ok());
  for (int i = 0; i < 2; ++i) EXPECT_THROW(sampler.reset(), std::bad_alloc);
  EXPECT_EQ(sampler.State(0), state);
}

class InADataLoader : public ::testing::TestWithParam<size_t> {
 protected:
  auto Loader(const DistributedSampler& sampler) { return MakeLoader(sampler, /*workers=*/GetParam()); }
};

TEST_P(InADataLoader, SetEpochChangesTheOrder) {
  DistributedSampler sampler = Make(103, Options(2, 0));
  auto loader = Loader(sampler);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    const std::vector<int64_t> order = Epoch(loader);
    EXPECT_EQ(order, sampler.Indices());
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3);
}

TEST_P(InADataLoader, RanksDoNotOverlap) {
  DistributedSampler rank0 = Make(103, Options(2, 0, true, true)), rank1 = Make(103, Options(2, 1, true, true));
  auto loader0 = Loader(rank0), loader1 = Loader(rank1);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    rank0.set_epoch(epoch);
    rank1.set_epoch(epoch);
    const std::vector<int64_t> first = Epoch(loader0), second = Epoch(loader1);
    std::set<int64_t> all(first.begin(), first.end());
    all.insert(second.begin(), second.end());
    EXPECT_EQ(all.size(), 102);
  }
}

TEST_P(InADataLoader, RestoreReachesTheCopyInside) {
  DistributedSampler sampler = Make(103, Options(2, 0));
  auto loader = Loader(sampler);
  sampler.set_epoch(2);
  const std::vector<int64_t> whole = sampler.Indices();
  SamplerState state;
  for (const std::vector<size_t>& batch : *loader) {
    state = sampler.State(batch.size());  // A checkpoint after the first step; workers have prefetched more.
    break;
  }
  EXPECT_EQ(state.consumed, 16);

  DistributedSampler resumed = Make(103, Options(2, 0));
  auto resumed_loader = Loader(resumed);
  ASSERT_TRUE(resumed.Restore(state).ok());
  EXPECT_EQ(Epoch(resumed_loader), std::vector<int64_t>(whole.begin() + 8, whole.end()));
  EXPECT_EQ(Epoch(resumed_loader), whole);
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

}  // namespace
}  // namespace lockstep::sampler
