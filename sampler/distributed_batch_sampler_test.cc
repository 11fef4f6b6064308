#include "lockstep/sampler/distributed_batch_sampler.h"

#include <c10/util/Exception.h>

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::sampler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Batches = std::vector<std::vector<size_t>>;

DistributedBatchSamplerOptions Options(int64_t num_replicas, int64_t rank, int64_t batch_size, bool drop_last = false) {
  DistributedBatchSamplerOptions options;
  options.sampler.num_replicas = num_replicas;
  options.sampler.rank = rank;
  options.sampler.shuffle = false;
  options.batch_size = batch_size;
  options.drop_last = drop_last;
  return options;
}

DistributedBatchSampler Make(int64_t size, const DistributedBatchSamplerOptions& options) {
  return DistributedBatchSampler::Create(size, options).value();
}

Batches Drain(DistributedBatchSampler& batches) {
  Batches all;
  for (const std::vector<size_t>& batch : batches) all.push_back(batch);
  return all;
}

TEST(DistributedBatchSampler, GivesEachRankItsShareInBatches) {
  DistributedBatchSampler rank1 = Make(11, Options(2, 1, 4));
  EXPECT_EQ(rank1.num_batches(), 2);
  EXPECT_THAT(Drain(rank1), ElementsAre(ElementsAre(1, 3, 5, 7), ElementsAre(9, 0)));
}

TEST(DistributedBatchSampler, HasAnInputIterator) {
  DistributedBatchSampler batches = Make(5, Options(1, 0, 2));
  DistributedBatchSampler::Iterator i = batches.begin();
  EXPECT_EQ(i->size(), 2);
  EXPECT_THAT(*i++, ElementsAre(0, 1));
  EXPECT_THAT(Batches(i, batches.end()), ElementsAre(ElementsAre(2, 3), ElementsAre(4)));
}

TEST(DistributedBatchSampler, DropLastLeavesOutTheShortBatch) {
  DistributedBatchSampler batches = Make(11, Options(2, 1, 4, /*drop_last=*/true));
  EXPECT_EQ(batches.num_batches(), 1);
  EXPECT_THAT(Drain(batches), ElementsAre(ElementsAre(1, 3, 5, 7)));
  EXPECT_EQ(batches.next(), std::nullopt);
  DistributedBatchSampler none = Make(3, Options(1, 0, 4, /*drop_last=*/true));
  EXPECT_EQ(none.num_batches(), 0);
  EXPECT_THAT(Drain(none), IsEmpty());
}

TEST(DistributedBatchSampler, IsCutFromTheSamplersOrderEveryEpoch) {
  DistributedBatchSamplerOptions options = Options(3, 2, 7);
  options.sampler.shuffle = true;
  DistributedBatchSampler batches = Make(100, options);
  DistributedSampler sampler = DistributedSampler::Create(100, options.sampler).value();
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    batches.set_epoch(epoch);
    EXPECT_EQ(batches.epoch(), epoch);
    sampler.set_epoch(epoch);
    sampler.reset();
    Batches expected;
    while (const auto batch = sampler.next(7)) expected.push_back(*batch);
    EXPECT_EQ(Drain(batches), expected);
    EXPECT_EQ(batches.num_batches(), expected.size());
  }
}

TEST(DistributedBatchSampler, RestoreGoesOnAfterTheBatchesThatWereUsed) {
  DistributedBatchSampler batches = Make(20, Options(2, 0, 3));
  DistributedBatchSampler resumed = Make(20, Options(2, 0, 3));
  ASSERT_TRUE(resumed.Restore(batches.State(2)).ok());
  EXPECT_EQ(resumed.num_remaining(), 2);
  EXPECT_THAT(Drain(resumed), ElementsAre(ElementsAre(12, 14, 16), ElementsAre(18)));
  ASSERT_TRUE(resumed.Restore(batches.State(4)).ok());
  EXPECT_THAT(Drain(resumed), IsEmpty());
}

TEST(DistributedBatchSampler, AllBatchesUsedIsAFinishedEpochWithDropLastToo) {
  DistributedBatchSampler batches = Make(11, Options(1, 0, 4, /*drop_last=*/true));
  EXPECT_EQ(batches.State(1).consumed, 4);
  EXPECT_EQ(batches.State(2).consumed, 11);
}

TEST(DistributedBatchSampler, NamesWhatIsWrong) {
  EXPECT_EQ(DistributedBatchSampler::Create(10, Options(1, 0, 0)).status(),
            absl::InvalidArgumentError("DistributedBatchSampler: batch_size: expected a positive number, found 0"));
  EXPECT_EQ(DistributedBatchSampler::Create(10, Options(2, 2, 1)).status(),
            absl::InvalidArgumentError("DistributedSampler: rank: expected a value in [0, 1], found 2"));
  try {
    Make(10, Options(1, 0, 4)).State(4);
    FAIL() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "DistributedBatchSampler: batches: expected a value in [0, 3], found 4");
  }
}

}  // namespace
}  // namespace lockstep::sampler
