#include "lockstep/data/loader.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/testing/thread_budget.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::data {
namespace {

using Batch = Example;
using ::lockstep::testing::ThreadBudget;
using sampler::DistributedSampler;
using ::testing::StartsWith;

// Example i is its index and a number drawn at random; those in `broken` fail.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, std::set<int64_t> broken = {}) : size_(size), broken_(std::move(broken)) {}

  int64_t size() const override { return size_; }
  absl::StatusOr<Batch> Get(int64_t index, at::Generator& random) const override {
    ++made;
    if (broken_.count(index) > 0) return absl::DataLossError(absl::StrCat(index, ".jpg: expected an image"));
    return Batch{at::randint(0, 1'000'000, {3}, random, at::kLong), at::scalar_tensor(index, at::kLong)};
  }

  mutable std::atomic<int64_t> made{0};

 private:
  const int64_t size_;
  const std::set<int64_t> broken_;
};

DistributedSampler InOrder(int64_t size) { return DistributedSampler::Create(size, {1, 0, false}).value(); }

LoaderOptions BatchesOf(int64_t batch_size, int num_workers = 2, int64_t prefetch = 2) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.num_workers = num_workers;
  options.prefetch = prefetch;
  return options;
}

std::unique_ptr<Loader> MakeLoader(const Dataset& dataset, sampler::Sampler& sampler, const LoaderOptions& options) {
  return Loader::Create(&dataset, &sampler, options).value();
}

// The batches that Next() gives until the pass ends.
std::vector<Batch> Rest(Loader& loader) {
  std::vector<Batch> batches;
  while (std::optional<Batch> batch = loader.Next().value()) batches.push_back(*std::move(batch));
  return batches;
}

std::vector<Batch> Pass(Loader& loader, int64_t epoch = 0) {
  EXPECT_EQ(loader.Start(epoch), absl::OkStatus());
  return Rest(loader);
}

// The examples' numbers, batch by batch: "0 1 2 | 3 4".
std::string Targets(const std::vector<Batch>& batches) {
  std::string text;
  for (const Batch& batch : batches) {
    if (!text.empty()) text += " |";
    for (int64_t i = 0; i < batch.target.size(0); ++i)
      absl::StrAppend(&text, text.empty() ? "" : " ", batch.target[i].item<int64_t>());
  }
  return text;
}

bool Equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].data.equal(b[i].data) || !a[i].target.equal(b[i].target)) return false;
  return true;
}

TEST(Loader, GivesBatchesInTheSamplersOrder) {
  const Numbers numbers(10);
  DistributedSampler sampler = InOrder(10);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(4));
  for (int64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(Targets(Pass(*loader, epoch)), "0 1 2 3 | 4 5 6 7 | 8 9");
  EXPECT_EQ(loader->consumed(), 10);
}

TEST(Loader, GivesNoBatchesOfAnEmptyDataset) {
  const Numbers numbers(0);
  for (const bool drop_last : {false, true}) {
    DistributedSampler sampler = DistributedSampler::Create(0, {3, 1, true, 0, drop_last}).value();
    LoaderOptions options = BatchesOf(4);
    options.drop_last = drop_last;
    const auto loader = MakeLoader(numbers, sampler, options);
    for (int64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(Targets(Pass(*loader, epoch)), "");
    EXPECT_EQ(loader->consumed(), 0);
  }
}

TEST(Loader, LeavesOutAShortBatchIfAsked) {
  const Numbers numbers(10);
  DistributedSampler sampler = InOrder(10);
  LoaderOptions options = BatchesOf(4);
  options.drop_last = true;
  EXPECT_EQ(Targets(Pass(*MakeLoader(numbers, sampler, options))), "0 1 2 3 | 4 5 6 7");
}

TEST(Loader, GivesTheSameWhateverTheNumberOfThreads) {
  const Numbers numbers(1000);
  DistributedSampler sampler = DistributedSampler::Create(1000, {}).value();
  const std::vector<Batch> one = Pass(*MakeLoader(numbers, sampler, BatchesOf(7, 1, 1)), 3);
  for (const int workers : {2, 5})
    EXPECT_TRUE(Equal(Pass(*MakeLoader(numbers, sampler, BatchesOf(7, workers, 4)), 3), one)) << workers << " workers";
}

TEST(Loader, DrawsAnExamplesAugmentationFromSeedEpochAndIndex) {
  const Numbers numbers(20);
  DistributedSampler sampler = InOrder(20);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(20));
  const at::Tensor first = Pass(*loader, 0)[0].data, second = Pass(*loader, 1)[0].data,
                   again = Pass(*loader, 0)[0].data;
  EXPECT_TRUE(first.equal(again));
  EXPECT_FALSE(first.eq(second).any().item<bool>());
  EXPECT_FALSE(first[0].equal(first[1]));

  LoaderOptions options = BatchesOf(20);
  options.seed = 1;
  EXPECT_FALSE(first.eq(Pass(*MakeLoader(numbers, sampler, options), 0)[0].data).any().item<bool>());
}

TEST(Loader, GoesOnInMidEpochWithWhatWouldHaveCome) {
  const Numbers numbers(50);
  DistributedSampler sampler = DistributedSampler::Create(50, {}).value();
  sampler.set_epoch(4);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(8));
  ASSERT_EQ(loader->Start(4), absl::OkStatus());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loader->Next().value().has_value());
  EXPECT_EQ(loader->consumed(), 24);
  const sampler::SamplerState state = sampler.State(loader->consumed());
  const std::vector<Batch> rest = Rest(*loader);

  DistributedSampler restored = DistributedSampler::Create(50, {}).value();
  ASSERT_EQ(restored.Restore(state), absl::OkStatus());
  EXPECT_TRUE(Equal(Pass(*MakeLoader(numbers, restored, BatchesOf(8, 3)), state.epoch), rest));
}

TEST(Loader, StartsAnewInTheMiddleOfAPass) {
  const Numbers numbers(30);
  DistributedSampler sampler = InOrder(30);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(10, 3));
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(loader->Start(0), absl::OkStatus());
    ASSERT_EQ(Targets({*loader->Next().value()}), "0 1 2 3 4 5 6 7 8 9");
  }
  EXPECT_EQ(Targets(Pass(*loader)),
            "0 1 2 3 4 5 6 7 8 9 | 10 11 12 13 14 15 16 17 18 19 | 20 21 22 23 24 25 26 27 28 29");
}

TEST(Loader, TakesEachRanksSampler) {
  const Numbers numbers(7);
  std::multiset<int64_t> seen;
  for (int64_t rank = 0; rank < 3; ++rank) {
    auto sampler = sampler::EvaluationSampler::Create(7, {3, rank}).value();
    for (const Batch& batch : Pass(*MakeLoader(numbers, sampler, BatchesOf(2))))
      for (int64_t i = 0; i < batch.target.size(0); ++i) seen.insert(batch.target[i].item<int64_t>());
  }
  EXPECT_EQ(seen, (std::multiset<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

// Each virtual rank's last batch is short, so short batches come in a row.
TEST(Loader, GivesTheBatchesOfAllVirtualRanksOfARank) {
  const Numbers numbers(42);
  sampler::DistributedSamplerOptions six_in_order;
  six_in_order.num_replicas = 6;
  six_in_order.shuffle = false;
  auto sampler = sampler::VirtualRankSampler::Create(42, /*rank=*/1, /*ranks=*/2, six_in_order).value();
  for (const int64_t prefetch : {1, 2, 9}) {
    LoaderOptions options = BatchesOf(3, 2, prefetch);
    const auto loader = MakeLoader(numbers, sampler, options);
    const std::string whole = "3 9 15 | 4 10 16 | 5 11 17 | 21 27 33 | 22 28 34 | 23 29 35";
    for (int64_t epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(Targets(Pass(*loader, epoch)), whole + " | 39 | 40 | 41");
    EXPECT_EQ(loader->consumed(), 21);
    EXPECT_EQ(sampler.State(loader->consumed()).consumed, 42);

    options.drop_last = true;
    const auto without_short = MakeLoader(numbers, sampler, options);
    for (int64_t epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(Targets(Pass(*without_short, epoch)), whole);
    EXPECT_EQ(sampler.State(without_short->consumed()).consumed, 36);
  }
}

TEST(Loader, AugmentsAnExampleAlikeOnAnyNumberOfRanksWithVirtualRanks) {
  const Numbers numbers(30);
  sampler::DistributedSamplerOptions of_six;
  of_six.num_replicas = 6;
  auto one = sampler::VirtualRankSampler::Create(30, /*rank=*/0, /*ranks=*/1, of_six).value();
  auto half = sampler::VirtualRankSampler::Create(30, /*rank=*/1, /*ranks=*/2, of_six).value();
  const std::vector<Batch> whole = Pass(*MakeLoader(numbers, one, BatchesOf(2)), 5);
  std::vector<Batch> second_half;
  for (size_t i = 0; i < whole.size(); ++i)
    if (i % 6 >= 3) second_half.push_back(whole[i]);
  EXPECT_TRUE(Equal(Pass(*MakeLoader(numbers, half, BatchesOf(2)), 5), second_half));
}

TEST(Loader, MakesNoMoreAheadThanAsked) {
  constexpr int64_t kBatch = 3, kPrefetch = 2;
  const Numbers numbers(300);
  DistributedSampler sampler = InOrder(300);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(kBatch, 4, kPrefetch));
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  int64_t given = 0;
  while (loader->Next().value().has_value()) {
    ++given;
    // One more: the example that it has made to learn the shapes.
    EXPECT_LE(numbers.made, 1 + (given + kPrefetch) * kBatch);
  }
  EXPECT_EQ(given, 100);
  EXPECT_EQ(numbers.made, 301);
}

TEST(Loader, UsesTheMemoryOfBatchesThatAreDroppedAgain) {
  constexpr int64_t kPrefetch = 2;
  const Numbers numbers(300);
  DistributedSampler sampler = InOrder(300);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(3, 2, kPrefetch));
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  std::set<void*> places;
  std::optional<Batch> batch;
  while ((batch = loader->Next().value())) {
    places.insert(batch->data.data_ptr());
    batch->data.requires_grad_(false).resize_({1});  // is the caller's to do
  }
  EXPECT_LE(places.size(), kPrefetch + 2);
}

// Images [channels, height, width] whose channels are innermost in memory.
class ChannelsLastImages : public Dataset {
 public:
  int64_t size() const override { return 4; }
  absl::StatusOr<Batch> Get(int64_t index, at::Generator&) const override {
    return Batch{at::full({5, 6, 3}, index, at::kByte).permute({2, 0, 1}), at::scalar_tensor(index, at::kLong)};
  }
};

TEST(Loader, KeepsImagesChannelsLast) {
  const ChannelsLastImages images;
  DistributedSampler sampler = InOrder(4);
  const Batch batch = Pass(*MakeLoader(images, sampler, BatchesOf(4)))[0];
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{4, 3, 5, 6}));
  EXPECT_EQ(batch.data.scalar_type(), at::kByte);
  EXPECT_TRUE(batch.data.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(batch.data[2].eq(2).all().item<bool>());
}

TEST(Loader, EndsWithTheErrorOfTheFirstExampleThatFails) {
  const Numbers numbers(10, {6, 8});
  DistributedSampler sampler = InOrder(10);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(4, 3));
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  EXPECT_TRUE(loader->Next().value().has_value());
  EXPECT_EQ(loader->Next().status(), absl::DataLossError("6.jpg: expected an image"));
  EXPECT_EQ(loader->Next().status(), absl::FailedPreconditionError("Loader: expected a Start() before Next()"));
}

TEST(Loader, LeavesOutAsManyFailedExamplesAsAllowed) {
  const Numbers numbers(10, {0, 4, 5, 9});
  DistributedSampler sampler = InOrder(10);
  LoaderOptions options = BatchesOf(2, 3);
  options.max_skipped = 4;
  const auto loader = MakeLoader(numbers, sampler, options);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(Targets(Pass(*loader, epoch)), "1 | 2 3 | 6 7 | 8");
    EXPECT_EQ(loader->consumed(), 10);
    ASSERT_EQ(loader->skipped().size(), 4);
    EXPECT_EQ(loader->skipped()[1].index, 4);
    EXPECT_EQ(loader->skipped()[1].error, absl::DataLossError("4.jpg: expected an image"));
  }
}

TEST(Loader, EndsWhereMoreExamplesFailThanAllowed) {
  const Numbers numbers(10, {0, 4, 5, 9});
  DistributedSampler sampler = InOrder(10);
  LoaderOptions options = BatchesOf(2, 3);
  options.max_skipped = 2;
  const auto loader = MakeLoader(numbers, sampler, options);
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  EXPECT_EQ(Targets({*loader->Next().value()}), "1");
  EXPECT_EQ(Targets({*loader->Next().value()}), "2 3");
  EXPECT_EQ(loader->Next().status(),
            absl::DataLossError("after max_skipped = 2 examples that were left out: 5.jpg: expected an image"));
}

TEST(Loader, GivesNothingWhereNothingCanBeMade) {
  const Numbers numbers(3, {0, 1, 2});
  DistributedSampler sampler = InOrder(3);
  LoaderOptions options = BatchesOf(2);
  options.max_skipped = 3;
  const auto loader = MakeLoader(numbers, sampler, options);
  EXPECT_TRUE(Pass(*loader).empty());
  EXPECT_EQ(loader->skipped().size(), 3);
}

// Example i has i numbers.
class Ragged : public Dataset {
 public:
  int64_t size() const override { return 4; }
  absl::StatusOr<Batch> Get(int64_t index, at::Generator&) const override {
    return Batch{at::zeros({std::max<int64_t>(index, 2)}), at::scalar_tensor(index, at::kLong)};
  }
};

TEST(Loader, NamesTheExampleOfAnotherShape) {
  const Ragged ragged;
  DistributedSampler sampler = InOrder(4);
  const auto loader = MakeLoader(ragged, sampler, BatchesOf(4));
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  EXPECT_EQ(loader->Next().status(),
            absl::InvalidArgumentError(
                "example 3: expected its data to be Float [2] like the other examples of the batch, found Float [3]"));
}

TEST(Loader, SaysWhatTheSamplerAndTheDatasetThrow) {
  class Throws : public Numbers {
   public:
    explicit Throws(int64_t bad) : Numbers(4), bad_(bad) {}
    absl::StatusOr<Batch> Get(int64_t index, at::Generator& random) const override {
      TORCH_CHECK_VALUE(index != bad_, "no such number");
      return Numbers::Get(index, random);
    }

   private:
    const int64_t bad_;
  };
  for (const int64_t bad : {2, 0}) {
    const Throws dataset(bad);
    DistributedSampler sampler = InOrder(4);
    const auto loader = MakeLoader(dataset, sampler, BatchesOf(4));
    ASSERT_EQ(loader->Start(0), absl::OkStatus());
    EXPECT_EQ(loader->Next().status(), absl::InvalidArgumentError(absl::StrCat("example ", bad, ": no such number")));
  }
}

TEST(Loader, TakesAPrefetchFarBeyondTheDataset) {
  const Numbers numbers(4);
  DistributedSampler sampler = InOrder(4);
  EXPECT_EQ(Targets(Pass(*MakeLoader(numbers, sampler, BatchesOf(3, 1, INT64_MAX)))), "0 1 2 | 3");
}

class Slow : public Numbers {
 public:
  using Numbers::Numbers;
  absl::StatusOr<Batch> Get(int64_t index, at::Generator& random) const override {
    absl::SleepFor(absl::Milliseconds(1));
    return Numbers::Get(index, random);
  }
};

TEST(Loader, CountsTheTimeThatNextWaits) {
  const Slow slow(64);
  DistributedSampler sampler = InOrder(64);
  const auto loader = MakeLoader(slow, sampler, BatchesOf(64));
  Pass(*loader);
  EXPECT_GT(loader->waited(), absl::Milliseconds(10));
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  EXPECT_EQ(loader->waited(), absl::ZeroDuration());
}

TEST(Loader, RefusesOptionsThatMakeNoBatches) {
  const Numbers numbers(4);
  DistributedSampler sampler = InOrder(4);
  const auto error = [&](const LoaderOptions& options) { return Loader::Create(&numbers, &sampler, options).status(); };
  EXPECT_EQ(error(BatchesOf(0)), absl::InvalidArgumentError("Loader: expected batch_size to be positive, found 0"));
  EXPECT_EQ(error(BatchesOf(1, 0)), absl::InvalidArgumentError("Loader: expected num_workers to be positive, found 0"));
  EXPECT_EQ(error(BatchesOf(1, 1, -1)),
            absl::InvalidArgumentError("Loader: expected prefetch to be positive, found -1"));
  LoaderOptions options;
  options.max_skipped = -1;
  EXPECT_EQ(error(options), absl::InvalidArgumentError("Loader: expected max_skipped to be 0 or more, found -1"));
}

TEST(Loader, RefusesAGpuWhereThereIsNone) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  const Numbers numbers(4);
  DistributedSampler sampler = InOrder(4);
  LoaderOptions pinned;
  pinned.pin_memory = true;
  const absl::Status pin_error = Loader::Create(&numbers, &sampler, pinned).status();
  EXPECT_EQ(pin_error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pin_error.message()), ::testing::StartsWith("Loader: pin_memory needs a GPU: "));
  LoaderOptions on_gpu;
  on_gpu.device = c10::Device(c10::kCUDA, 1);
  const absl::Status device_error = Loader::Create(&numbers, &sampler, on_gpu).status();
  EXPECT_EQ(device_error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device_error.message()), ::testing::StartsWith("Loader: device cuda:1: "));
}

TEST(Loader, LeavesTheCallersIntraOpThreadsAsTheyWere) {
  const Numbers numbers(4);
  DistributedSampler sampler = InOrder(4);
  at::set_num_threads(3);
  const auto loader = MakeLoader(numbers, sampler, BatchesOf(4));
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST(Loader, GoesOnWithTheThreadsThatTheSystemGives) {
  const Numbers numbers(10);
  DistributedSampler sampler = InOrder(10);
  {
    const ThreadBudget none(0);
    const absl::Status status = Loader::Create(&numbers, &sampler, BatchesOf(4, 3)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                StartsWith("Loader: cannot start a worker: Resource temporarily unavailable ("));
  }
  for (const int given : {1, 2}) {
    const ThreadBudget few(given);
    const std::unique_ptr<Loader> loader = MakeLoader(numbers, sampler, BatchesOf(4, 3));
    ASSERT_EQ(loader->Start(0), absl::OkStatus());
    EXPECT_EQ(Rest(*loader).size(), 3);
  }
}

}  // namespace
}  // namespace lockstep::data
