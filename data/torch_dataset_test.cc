#include "lockstep/data/torch_dataset.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/loader.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

namespace lockstep::data {
namespace {

constexpr int64_t kSize = 20, kSeed = 7;

// Example i is three random numbers and i.
class Numbers : public Dataset {
 public:
  int64_t size() const override { return kSize; }
  absl::StatusOr<Example> Get(int64_t index, at::Generator& random) const override {
    if (index >= kSize) return absl::OutOfRangeError("no such number");
    return Example{at::randint(0, 1'000'000, {3}, random, at::kLong), at::scalar_tensor(index, at::kLong)};
  }
};

std::vector<Example> BatchesOfLoader(const Dataset& dataset, sampler::Sampler& sampler, int64_t epoch) {
  LoaderOptions options;
  options.batch_size = 8;
  options.seed = kSeed;
  const auto loader = Loader::Create(&dataset, &sampler, options).value();
  EXPECT_EQ(loader->Start(epoch), absl::OkStatus());
  std::vector<Example> batches;
  while (std::optional<Example> batch = loader->Next().value()) batches.push_back(*batch);
  return batches;
}

TEST(TorchDataset, GivesTheExamplesOfALoaderInEveryEpoch) {
  const Numbers numbers;
  auto sampler = sampler::DistributedSampler::Create(kSize, {}).value();
  for (const size_t workers : {0, 2}) {
    TorchDataset dataset(&numbers, kSeed);
    EXPECT_EQ(dataset.size(), kSize);
    const auto loader =
        torch::data::make_data_loader(dataset.map(torch::data::transforms::Stack<>()), sampler::TorchSampler(sampler),
                                      torch::data::DataLoaderOptions().batch_size(8).workers(workers));
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      sampler.set_epoch(epoch);
      dataset.set_epoch(epoch);
      const std::vector<Example> expected = BatchesOfLoader(numbers, sampler, epoch);
      size_t batches = 0;
      for (const torch::data::Example<>& batch : *loader) {
        ASSERT_LT(batches, expected.size());
        EXPECT_TRUE(batch.data.equal(expected[batches].data));
        EXPECT_TRUE(batch.target.equal(expected[batches].target));
        ++batches;
      }
      EXPECT_EQ(batches, 3);
    }
  }
}

TEST(TorchDataset, ThrowsTheStatusOfTheDataset) {
  const Numbers numbers;
  TorchDataset dataset(&numbers);
  EXPECT_EQ(TorchStatus("", [&] { dataset.get(kSize); }), absl::OutOfRangeError("no such number"));
}

}  // namespace
}  // namespace lockstep::data
