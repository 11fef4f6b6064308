#include "lockstep/sampler/virtual_rank_sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/sampler/testing/samplers.h"

namespace lockstep::sampler {
namespace {

using testing::Drain;
using ::testing::ElementsAre;
using testing::Epoch;
using testing::MakeLoader;
using testing::ValueErrorOf;
using Batch = std::vector<size_t>;

DistributedSamplerOptions Of(int64_t virtual_ranks, bool shuffle = true, bool drop_last = false,
                             Permutation permutation = Permutation::kTorch) {
  DistributedSamplerOptions options;
  options.num_replicas = virtual_ranks;
  options.shuffle = shuffle;
  options.drop_last = drop_last;
  options.permutation = permutation;
  return options;
}

VirtualRankSampler Make(int64_t size, const DistributedSamplerOptions& options, int64_t rank, int64_t ranks) {
  return VirtualRankSampler::Create(size, rank, ranks, options).value();
}

// The samplers of `ranks` ranks.
std::vector<VirtualRankSampler> OnRanks(int64_t ranks, int64_t size, const DistributedSamplerOptions& options) {
  std::vector<VirtualRankSampler> samplers;
  for (int64_t rank = 0; rank < ranks; ++rank) samplers.push_back(Make(size, options, rank, ranks));
  return samplers;
}

// Returns the batches of the virtual ranks in `steps` steps, or in the steps that are left if there are fewer. Counts
// the steps.
std::vector<Batch> Steps(std::vector<VirtualRankSampler>& ranks, size_t batch_size, int64_t* steps) {
  std::vector<Batch> used;
  for (int64_t step = 0; step < *steps; ++step) {
    const size_t before = used.size();
    for (VirtualRankSampler& sampler : ranks) {
      for (int64_t v = 0; v < sampler.num_virtual_ranks(); ++v) {
        if (std::optional<Batch> batch = sampler.next(batch_size)) used.push_back(*std::move(batch));
      }
    }
    if (used.size() == before) *steps = step;
  }
  return used;
}

// Returns the same batches from one DistributedSampler for each virtual rank.
std::vector<Batch> Expected(int64_t size, DistributedSamplerOptions options, int64_t epoch, size_t batch_size) {
  std::vector<DistributedSampler> samplers;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    samplers.push_back(DistributedSampler::Create(size, options).value());
    samplers.back().set_epoch(epoch);
  }
  std::vector<Batch> used;
  while (true) {
    for (DistributedSampler& sampler : samplers) {
      std::optional<Batch> batch = sampler.next(batch_size);
      if (!batch) return used;
      used.push_back(*std::move(batch));
    }
  }
}

TEST(VirtualRankSampler, GivesABatchOfEachVirtualRankInTurn) {
  VirtualRankSampler sampler = Make(30, Of(6, /*shuffle=*/false), 1, 3);
  EXPECT_EQ(sampler.first(), 2);
  EXPECT_EQ(sampler.last(), 4);
  EXPECT_EQ(sampler.num_virtual_ranks(), 2);
  EXPECT_EQ(sampler.num_samples(), 10);
  EXPECT_EQ(sampler.total_size(), 30);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(2, 8, 14)));
    EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(3, 9, 15)));
    EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(20, 26)));
    EXPECT_THAT(sampler.next(3), ::testing::Optional(ElementsAre(21, 27)));
    EXPECT_EQ(sampler.next(3), std::nullopt);
    EXPECT_EQ(sampler.next(3), std::nullopt);
    sampler.reset();
  }
}

TEST(VirtualRankSampler, GivesTheBatchesOfAStepThatAccumulatesOneAfterAnother) {
  VirtualRankSampler sampler = VirtualRankSampler::Create(18, 0, 1, Of(2, /*shuffle=*/false), 2).value();
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(0, 2)));
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(4, 6)));
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(1, 3)));
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(5, 7)));
  const SamplerState after_a_step = sampler.State(8);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(8, 10)));
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(12, 14)));
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(9, 11)));
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(13, 15)));
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(16)));  // its turn ends with its share
    EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(17)));
    EXPECT_EQ(sampler.next(2), std::nullopt);
    ASSERT_EQ(sampler.Restore(after_a_step), absl::OkStatus());
  }
  EXPECT_EQ(VirtualRankSampler::Create(18, 0, 1, Of(2), 0).status().message(),
            "VirtualRankSampler: batches_in_turn: expected a positive number, found 0");
}

TEST(VirtualRankSampler, GivesEachVirtualRankTheSameOnAnyNumberOfRanks) {
  constexpr int64_t kVirtualRanks = 7, kEpoch = 3;
  for (const Permutation permutation : {Permutation::kTorch, Permutation::kFeistel}) {
    for (const bool drop_last : {false, true}) {
      for (const int64_t size : {3, 7, 100, 105}) {  // fewer than virtual ranks, one each, uneven, even
        for (const size_t batch_size : {1, 4, 1000}) {
          const DistributedSamplerOptions options = Of(kVirtualRanks, /*shuffle=*/true, drop_last, permutation);
          const std::vector<Batch> expected = Expected(size, options, kEpoch, batch_size);
          for (int64_t ranks = 1; ranks <= kVirtualRanks; ++ranks) {
            std::vector<VirtualRankSampler> samplers = OnRanks(ranks, size, options);
            for (VirtualRankSampler& sampler : samplers) sampler.set_epoch(kEpoch);
            int64_t steps = 1000;
            EXPECT_EQ(Steps(samplers, batch_size, &steps), expected)
                << PermutationName(permutation) << ", drop_last " << drop_last << ", size " << size << ", batches of "
                << batch_size << ", " << ranks << " ranks";
          }
        }
      }
    }
  }
}

TEST(VirtualRankSampler, GivesEachVirtualRankTheSameInRoundRobin) {
  const DistributedSamplerOptions options = Of(8);
  for (int64_t ranks = 1; ranks <= 8; ++ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      VirtualRankSampler sampler =
          VirtualRankSampler::Create(100, rank, ranks, options, 1, VirtualRankOrder::kRoundRobin).value();
      sampler.set_epoch(2);
      const std::vector<Batch> all = Expected(100, options, 2, 3);  // of virtual ranks 0 to 7 in turn
      for (size_t batch = 0; batch < all.size(); ++batch) {
        if (static_cast<int64_t>(batch) % 8 % ranks == rank)
          EXPECT_THAT(sampler.next(3), ::testing::Optional(all[batch]));
      }
      EXPECT_EQ(sampler.next(3), std::nullopt);
    }
  }
}

TEST(VirtualRankSampler, WithOneVirtualRankIsADistributedSampler) {
  DistributedSamplerOptions options = Of(3);
  options.rank = 2;
  DistributedSampler expected = DistributedSampler::Create(100, options).value();
  VirtualRankSampler sampler = Make(100, options, 2, 3);
  EXPECT_EQ(sampler.num_samples(), expected.num_samples());
  EXPECT_EQ(sampler.State(5), expected.State(5));
  EXPECT_EQ(Drain(sampler), Drain(expected));
}

TEST(VirtualRankSampler, ContinuesInMidEpochOnOtherNumbersOfRanks) {
  for (const bool drop_last : {false, true}) {
    const DistributedSamplerOptions options = Of(8, /*shuffle=*/true, drop_last);
    constexpr int64_t kSize = 203, kEpoch = 2, kBatch = 4;
    std::vector<Batch> used;
    std::optional<SamplerState> state;
    for (const auto& [ranks, most] : std::vector<std::pair<int64_t, int64_t>>{{8, 2}, {3, 3}, {5, 100}}) {
      std::vector<VirtualRankSampler> samplers = OnRanks(ranks, kSize, options);
      for (VirtualRankSampler& sampler : samplers) {
        if (state) ASSERT_EQ(sampler.Restore(*state), absl::OkStatus());
        sampler.set_epoch(kEpoch);  // as a training loop does
      }
      int64_t steps = most;
      const std::vector<Batch> more = Steps(samplers, kBatch, &steps);
      used.insert(used.end(), more.begin(), more.end());
      std::set<int64_t> places;
      for (const VirtualRankSampler& sampler : samplers) {
        const int64_t each = sampler.num_remaining() / sampler.num_virtual_ranks();
        state = sampler.State(std::min(each, steps * kBatch) * sampler.num_virtual_ranks());
        places.insert(state->consumed);
      }
      EXPECT_EQ(places.size(), 1) << "the ranks' states differ";
    }
    EXPECT_EQ(state->consumed, kSize);
    EXPECT_EQ(state->num_replicas, 8);
    EXPECT_EQ(used, Expected(kSize, options, kEpoch, kBatch));
  }
}

TEST(VirtualRankSampler, AnEpochThatWasFinishedHasNothingLeftOnAnyRank) {
  const SamplerState finished = Make(10, Of(4), 0, 1).State(12);
  EXPECT_EQ(finished.consumed, 10);
  for (VirtualRankSampler& sampler : OnRanks(3, 10, Of(4))) {
    ASSERT_EQ(sampler.Restore(finished), absl::OkStatus());
    EXPECT_EQ(sampler.num_remaining(), 0);
    EXPECT_EQ(sampler.next(1), std::nullopt);
    EXPECT_EQ(sampler.State(0), finished);
    sampler.reset();
    EXPECT_EQ(Drain(sampler).size(), sampler.num_samples());
  }
}

TEST(VirtualRankSampler, AResetOrARestoredPlaceBeginsWithTheFirstVirtualRank) {
  VirtualRankSampler sampler = Make(12, Of(3, /*shuffle=*/false), 0, 1);
  ASSERT_TRUE(sampler.next(2));
  sampler.reset();
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(0, 3)));
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(1, 4)));
  ASSERT_EQ(sampler.Restore(sampler.State(3)), absl::OkStatus());
  EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(3, 6)));
  sampler.reset(6);  // the dataset has shrunk
  EXPECT_EQ(sampler.num_samples(), 6);
  EXPECT_THAT(sampler.next(9), ::testing::Optional(ElementsAre(0, 3)));
}

TEST(VirtualRankSampler, GivesEachIndexOnceIfTheBatchSizeChanges) {
  VirtualRankSampler sampler = Make(24, Of(3), 0, 1);
  std::set<size_t> seen;
  for (const size_t batch_size : {1, 7, 3, 2, 5, 1, 4, 9, 9}) {
    if (const std::optional<Batch> batch = sampler.next(batch_size)) seen.insert(batch->begin(), batch->end());
  }
  EXPECT_EQ(sampler.next(1), std::nullopt);
  EXPECT_EQ(seen.size(), 24);
}

TEST(VirtualRankSampler, DividesHugeDatasetsAmongManyVirtualRanks) {
  for (const Permutation permutation : {Permutation::kTorch, Permutation::kFeistel}) {
    const int64_t size = permutation == Permutation::kTorch ? 10'000'000 : int64_t{1} << 62;
    VirtualRankSampler sampler = Make(size, Of(256, true, false, permutation), 0, 1);
    const Batch order = DistributedSampler::Create(size, Of(1, true, false, permutation))->next(512).value();
    for (size_t v = 0; v < 256; ++v) {
      EXPECT_THAT(sampler.next(2), ::testing::Optional(ElementsAre(order[v], order[v + 256])));
    }
  }
}

class InADataLoader : public ::testing::TestWithParam<size_t> {};

TEST_P(InADataLoader, SetEpochAndRestoreReachTheCopyInside) {
  VirtualRankSampler sampler = Make(103, Of(6), 1, 3);
  auto loader = MakeLoader(sampler, /*workers=*/GetParam());
  sampler.set_epoch(2);
  VirtualRankSampler alone = sampler;
  alone.reset();
  const std::vector<int64_t> whole = Drain(alone, 8);
  EXPECT_EQ(Epoch(loader), whole);

  const SamplerState state = sampler.State(2 * 8);  // after the first step
  VirtualRankSampler resumed = Make(103, Of(6), 1, 3);
  auto resumed_loader = MakeLoader(resumed, /*workers=*/GetParam());
  ASSERT_EQ(resumed.Restore(state), absl::OkStatus());
  EXPECT_EQ(Epoch(resumed_loader), std::vector<int64_t>(whole.begin() + 16, whole.end()));
  EXPECT_EQ(Epoch(resumed_loader), whole);
}

INSTANTIATE_TEST_SUITE_P(Workers, InADataLoader, ::testing::Values(0, 2));

TEST(VirtualRankSampler, CreateNamesWhatIsWrong) {
  const auto error = [](int64_t size, int64_t virtual_ranks, int64_t rank, int64_t ranks) {
    return VirtualRankSampler::Create(size, rank, ranks, Of(virtual_ranks)).status();
  };
  const auto ranks = [](const char* found) {
    return absl::InvalidArgumentError(absl::StrCat(
        "VirtualRankSampler: expected 0 <= rank < ranks <= 8, the number of virtual ranks, found ", found));
  };
  EXPECT_EQ(error(10, 8, 3, 3), ranks("rank = 3 and ranks = 3"));
  EXPECT_EQ(error(10, 8, 5, 9), ranks("rank = 5 and ranks = 9"));
  EXPECT_EQ(error(10, 8, -1, 2), ranks("rank = -1 and ranks = 2"));
  EXPECT_EQ(error(10, 0, 0, 0),
            absl::InvalidArgumentError(
                "VirtualRankSampler: DistributedSampler: num_replicas: expected a positive number, found 0"));
  EXPECT_EQ(error(-1, 8, 0, 1).message(),
            "VirtualRankSampler: DistributedSampler: size: expected a value in [0, 4611686018427387904], found -1");
}

TEST(VirtualRankSampler, GivesNothingOfAnEmptyDataset) {
  for (const bool drop_last : {false, true}) {
    VirtualRankSampler sampler = Make(0, Of(8, true, drop_last), 1, 3);
    EXPECT_EQ(sampler.num_samples(), 0);
    EXPECT_THAT(Drain(sampler), ElementsAre());
    EXPECT_EQ(sampler.Restore(sampler.State(0)), absl::OkStatus());
    EXPECT_THAT(Drain(sampler), ElementsAre());
  }
}

TEST(VirtualRankSampler, NamesAPlaceThatIsNotBetweenTwoSteps) {
  VirtualRankSampler sampler = Make(80, Of(8), 1, 3);
  EXPECT_EQ(ValueErrorOf([&] { sampler.State(31); }),
            "VirtualRankSampler: consumed: expected a value in [0, 30], found 31");
  EXPECT_EQ(ValueErrorOf([&] { sampler.State(7); }),
            "VirtualRankSampler: consumed: expected a multiple of 3, the number of this rank's virtual ranks, found 7");
  EXPECT_EQ(ValueErrorOf([&] { sampler.next(0); }),
            "VirtualRankSampler::next: expected a batch_size of at least 1, found 0");
  SamplerState other = sampler.State(0);
  other.size = 81;
  EXPECT_EQ(sampler.Restore(other),
            absl::InvalidArgumentError("VirtualRankSampler: DistributedSampler::Restore: size: expected 80, found 81"));
}

}  // namespace
}  // namespace lockstep::sampler
