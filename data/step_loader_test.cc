#include "lockstep/data/step_loader.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::data {
namespace {

using sampler::VirtualRankOrder;
using ::testing::HasSubstr;

constexpr int64_t kVirtualRanks = 5, kSteps = 17;

// Example i is i and a random number.
class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 43; }
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override {
    return Example{at::scalar_tensor(index, at::kLong), at::randint(0, 1000, {1}, random, at::kLong)};
  }
};

// By step and virtual rank.
using Batches = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;

std::vector<int64_t> Flat(const Example& batch) {
  const at::Tensor all = at::cat({batch.data.flatten(), batch.target.flatten()});
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

StepLoaderOptions Options(VirtualRankOrder order = VirtualRankOrder::kBlocks) {
  StepLoaderOptions options;
  options.batch_size = 2 * kVirtualRanks;
  options.virtual_ranks = kVirtualRanks;
  options.order = order;
  options.seed = 3;
  options.examples = 41;  // 5 steps an epoch, the last with a short batch
  return options;
}

Batches From(int64_t begin, int64_t ranks, VirtualRankOrder order) {
  const Numbers numbers;
  Batches batches;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto loader = StepLoader::Create(&numbers, rank, ranks, Options(order)).value();
    const auto sampler =
        sampler::VirtualRankSampler::Create(1, rank, ranks, {.num_replicas = kVirtualRanks}, 1, order).value();
    for (int64_t step = begin; step < kSteps; ++step) {
      for (int64_t i = 0; i < sampler.num_virtual_ranks(); ++i) {
        const int64_t virtual_rank = order == VirtualRankOrder::kBlocks ? sampler.first() + i : rank + i * ranks;
        batches[{step, virtual_rank}] = Flat(loader->Next(step));
      }
    }
  }
  return batches;
}

TEST(StepLoader, ABatchDependsOnItsStepAndVirtualRankAlone) {
  const Batches all = From(0, 1, VirtualRankOrder::kBlocks);
  EXPECT_EQ(all.size(), kSteps * kVirtualRanks);
  EXPECT_NE(all.at({0, 0}), all.at({5, 0}));  // the next epoch
  for (const auto order : {VirtualRankOrder::kBlocks, VirtualRankOrder::kRoundRobin}) {
    for (int64_t ranks = 1; ranks <= kVirtualRanks; ++ranks) {
      for (const int64_t begin : {0, 3, 5, 12}) {
        const Batches some = From(begin, ranks, order);
        EXPECT_EQ(some.size(), (kSteps - begin) * kVirtualRanks);
        for (const auto& [place, batch] : some) {
          EXPECT_EQ(batch, all.at(place))
              << ranks << " ranks from step " << begin << ", step " << place.first << ", virtual rank " << place.second;
        }
      }
    }
  }
}

TEST(StepLoader, AnEpochHasEachExample) {
  std::vector<int> seen(41);
  const Batches all = From(0, 1, VirtualRankOrder::kBlocks);
  for (const auto& [place, batch] : all) {
    for (size_t i = 0; place.first < 5 && i < batch.size() / 2; ++i) ++seen.at(batch[i]);
  }
  EXPECT_THAT(seen, ::testing::Each(::testing::AllOf(::testing::Ge(1), ::testing::Le(2))));  // 41 are filled up to 45
}

TEST(StepLoader, NamesWhatIsWrong) {
  const Numbers numbers;
  StepLoaderOptions options = Options();
  options.batch_size = 7;
  EXPECT_EQ(StepLoader::Create(&numbers, 0, 1, options).status(),
            absl::InvalidArgumentError("StepLoader: batch_size: expected a multiple of the 5 virtual ranks, found 7"));
  options = Options();
  options.examples = 44;
  EXPECT_EQ(StepLoader::Create(&numbers, 0, 1, options).status(),
            absl::InvalidArgumentError("StepLoader: expected 1 to 43 examples, the dataset's, found 44"));
  EXPECT_THAT(StepLoader::Create(&numbers, 0, 6, Options()).status().message(),
              HasSubstr("expected 0 <= rank < ranks <= 5"));
  const auto loader = StepLoader::Create(&numbers, 0, 5, Options()).value();
  loader->Next(2);
  EXPECT_EQ(TorchStatus("", [&] { loader->Next(2); }),
            absl::FailedPreconditionError("StepLoader: expected step 3, found 2"));
  loader->Next(3);
}

}  // namespace
}  // namespace lockstep::data
