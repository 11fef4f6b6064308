// On one GPU, with --config=cuda.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/data/fake_data.h"
#include "lockstep/data/loader.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::data {
namespace {

using Batch = Example;

std::vector<Batch> Pass(const LoaderOptions& options) {
  const FakeData fake = FakeData::Create({100, {3, 64, 64}}).value();
  auto sampler = sampler::DistributedSampler::Create(100, {}).value();
  const auto loader = Loader::Create(&fake, &sampler, options).value();
  EXPECT_EQ(loader->Start(0), absl::OkStatus());
  std::vector<Batch> batches;
  while (std::optional<Batch> batch = loader->Next().value()) batches.push_back(*std::move(batch));
  return batches;
}

LoaderOptions BatchesOf16() {
  LoaderOptions options;
  options.batch_size = 16;
  return options;
}

TEST(LoaderOnGpu, GivesBatchesThere) {
  LoaderOptions options = BatchesOf16();
  const std::vector<Batch> expected = Pass(options);
  options.device = at::kCUDA;
  const std::vector<Batch> found = Pass(options);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].data.is_cuda() && found[i].target.is_cuda());
    EXPECT_TRUE(found[i].data.cpu().equal(expected[i].data));
    EXPECT_TRUE(found[i].target.cpu().equal(expected[i].target));
  }
}

TEST(LoaderOnGpu, PinsMemory) {
  LoaderOptions options = BatchesOf16();
  options.pin_memory = true;
  for (const Batch& batch : Pass(options)) EXPECT_TRUE(batch.data.is_pinned() && batch.target.is_pinned());
}

}  // namespace
}  // namespace lockstep::data
