#include "lockstep/data/tokens/token_dataset.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/loader.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace lockstep::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file of tokens first, first + 1, ...
std::string WriteCounting(const std::string& name, uint16_t first, size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(tokens.data()), count * 2);
  return path;
}

absl::StatusOr<Example> Get(const TokenDataset& dataset, int64_t index) {
  at::Generator random = at::detail::createCPUGenerator(0);
  return dataset.Get(index, random);
}

std::vector<int64_t> ToVector(const at::Tensor& tensor) {
  const auto* const first = static_cast<const int64_t*>(tensor.const_data_ptr());
  return {first, first + tensor.numel()};
}

std::vector<int64_t> Inputs(const TokenDataset& dataset, int64_t index) {
  return ToVector(Get(dataset, index).value().data);
}

TEST(TokenDataset, CutsEachFileIntoBlocks) {
  const std::vector<std::string> files = {WriteCounting("a", 0, 7), WriteCounting("b", 100, 1),
                                          WriteCounting("c", 200, 0), WriteCounting("d", 300, 4)};
  const auto dataset = TokenDataset::Create({{files}}, {.block = 3}).value();
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->tokens(), 12);
  EXPECT_THAT(Inputs(*dataset, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Inputs(*dataset, 1), ElementsAre(3, 4, 5));
  EXPECT_THAT(Inputs(*dataset, 2), ElementsAre(300, 301, 302));
  EXPECT_THAT(ToVector(Get(*dataset, 1).value().target), ElementsAre(4, 5, 6));
  for (const int64_t index : {-1, 3}) EXPECT_EQ(Get(*dataset, index).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(TokenDataset, MayBeEmpty) {
  EXPECT_EQ(TokenDataset::Create({}, {}).value()->size(), 0);
  const std::string small = WriteCounting("small", 0, 3);
  EXPECT_EQ(TokenDataset::Create({{{small}}}, {.block = 3}).value()->size(), 0);
}

// Each source has its part, and each of its blocks comes equally often, to one.
TEST(TokenDataset, MixesSourcesByTheirWeights) {
  const TokenSource large = {{WriteCounting("l0", 0, 1001), WriteCounting("l1", 2000, 1001)}, TokenFormat::kDetect, 1};
  const TokenSource small = {{WriteCounting("s", 5000, 31)}, TokenFormat::kDetect, 3};
  const auto dataset = TokenDataset::Create({large, small}, {.block = 10, .size = 40, .seed = 4}).value();
  ASSERT_EQ(dataset->size(), 40);
  std::map<int64_t, int> times;  // of each block, by its first token
  std::vector<int64_t> order;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    order.push_back(Inputs(*dataset, i)[0]);
    ++times[order.back()];
  }
  EXPECT_EQ(times[5000], 10);
  EXPECT_EQ(times[5010], 10);
  EXPECT_EQ(times[5020], 10);
  EXPECT_EQ(times.size(), 13U);  // 10 different ones of the 200
  EXPECT_THAT(std::vector<int64_t>(order.begin(), order.begin() + 10), Each(::testing::Lt(4000)));
  EXPECT_THAT(std::vector<int64_t>(order.begin(), order.begin() + 10), ::testing::Contains(::testing::Ge(2000)));
  const auto other = TokenDataset::Create({large, small}, {.block = 10, .size = 40, .seed = 5}).value();
  std::vector<int64_t> other_order;
  for (int64_t i = 0; i < other->size(); ++i) other_order.push_back(Inputs(*other, i)[0]);
  EXPECT_NE(order, other_order);
}

TEST(TokenDataset, GivesAllBlocksOfTheEpochToSomeSource) {
  const std::string file = WriteCounting("part", 0, 101);
  for (const int64_t size : {1, 2, 3, 7, 1000}) {
    std::vector<TokenSource> sources;
    for (const double weight : {0.1, 0.2, 0.3, 1e-9}) sources.push_back({{file}, TokenFormat::kDetect, weight});
    EXPECT_EQ(TokenDataset::Create(sources, {.block = 10, .size = size}).value()->size(), size);
  }
}

TEST(TokenDataset, TakesOutTargetsInAnotherDocument) {
  const std::string file = WriteCounting("documents", 10, 9);
  const auto dataset = TokenDataset::Create({{{file}}}, {.block = 4, .end_of_text = 13}).value();
  EXPECT_THAT(ToVector(Get(*dataset, 0).value().target), ElementsAre(11, 12, 13, -100));
  EXPECT_THAT(ToVector(Get(*dataset, 1).value().target), ElementsAre(15, 16, 17, 18));
}

TEST(TokenDataset, NamesATokenThatIsNotInTheVocabulary) {
  const std::string file = WriteCounting("vocabulary", 10, 9);
  const auto dataset = TokenDataset::Create({{{file}}}, {.block = 4, .vocabulary = 17}).value();
  EXPECT_TRUE(Get(*dataset, 0).ok());
  const absl::Status status = Get(*dataset, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/vocabulary: token 8 is 18, expected below 17, the size of the vocabulary"));
}

TEST(TokenDataset, RefusesOptionsThatMakeNoSense) {
  const std::string file = WriteCounting("options", 0, 9);
  const auto error = [](const std::vector<TokenSource>& sources, const TokenDatasetOptions& options) {
    const absl::Status status = TokenDataset::Create(sources, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto weighing = [&](double weight) { return TokenSource{{file}, TokenFormat::kDetect, weight}; };
  EXPECT_THAT(error({}, {.block = 0}), HasSubstr("block is 0"));
  EXPECT_THAT(error({}, {.block = std::numeric_limits<int64_t>::max()}), HasSubstr("block is 9223372036854775807"));
  EXPECT_THAT(error({}, {.size = -1}), HasSubstr("size is -1"));
  EXPECT_THAT(error({}, {.vocabulary = -1}), HasSubstr("vocabulary is -1"));
  EXPECT_THAT(error({weighing(0)}, {.block = 2, .size = 5}), HasSubstr("size needs weights"));
  EXPECT_THAT(error({weighing(1)}, {.block = 2}), HasSubstr("weights need a size"));
  EXPECT_THAT(error({weighing(1), weighing(0)}, {.block = 2, .size = 5}), HasSubstr("1 of 2 sources have a weight"));
  for (const double weight : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(error({weighing(2), weighing(weight)}, {.block = 2, .size = 5}),
                HasSubstr("the weight of source 1 is"));
  EXPECT_THAT(error({weighing(1)}, {.block = 9, .size = 5}), HasSubstr("source 0 has no file with 10 tokens"));
}

TEST(TokenDataset, NamesAFileThatIsGoneOrHasChanged) {
  const std::string file = WriteCounting("gone", 0, 9);
  const auto changed = TokenDataset::Create({{{file}}}, {.block = 4}).value();
  ASSERT_TRUE(Get(*changed, 0).ok());
  ASSERT_EQ(truncate(file.c_str(), 4), 0);
  EXPECT_EQ(Get(*changed, 0).status().code(), absl::StatusCode::kDataLoss);
  WriteCounting("gone", 0, 9);
  const auto gone = TokenDataset::Create({{{file}}}, {.block = 4}).value();
  ASSERT_EQ(unlink(file.c_str()), 0);
  const absl::Status status = Get(*gone, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/gone: "));
}

// More files than stay open, by several threads at once.
TEST(TokenDataset, IsReadByThreadsAtOnce) {
  std::vector<std::string> files;
  for (int f = 0; f < 300; ++f) files.push_back(WriteCounting(absl::StrCat("many", f), f * 100, 21));
  const auto dataset = TokenDataset::Create({{files}}, {.block = 10}).value();
  ASSERT_EQ(dataset->size(), 600);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 600; ++i) {
        const int64_t index = i * (t + 7) % 600;
        EXPECT_EQ(Inputs(*dataset, index)[0], index / 2 * 100 + index % 2 * 10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// 10^12 tokens in files without blocks on the disk, and each rank's last examples.
TEST(TokenDataset, HasMoreTokensThanFitAnywhere) {
  constexpr int64_t kTokens = 10'000'000'000;
  std::vector<std::string> files;
  for (int f = 0; f < 100; ++f) {
    files.push_back(absl::StrCat(::testing::TempDir(), "/sparse", f));
    std::ofstream(files.back(), std::ios::binary).flush();
    ASSERT_EQ(truncate(files.back().c_str(), 2 * kTokens), 0);
  }
  const auto dataset = TokenDataset::Create({{files}}, {.block = 1024}).value();
  EXPECT_EQ(dataset->tokens(), 100 * kTokens);
  EXPECT_EQ(dataset->size(), 100 * ((kTokens - 1) / 1024));
  for (const int64_t index : {int64_t{0}, dataset->size() / 2, dataset->size() - 1})
    EXPECT_THAT(Inputs(*dataset, index), Each(0));
  for (const std::string& file : files) unlink(file.c_str());
}

TEST(TokenDataset, IsLoadedInTheSamplersOrder) {
  const auto dataset = TokenDataset::Create({{{WriteCounting("loaded", 0, 101)}}}, {.block = 10}).value();
  auto sampler = sampler::DistributedSampler::Create(10, {.num_replicas = 2, .rank = 1, .shuffle = false}).value();
  const auto loader = Loader::Create(dataset.get(), &sampler, {.batch_size = 2}).value();
  ASSERT_EQ(loader->Start(0), absl::OkStatus());
  const Example batch = loader->Next().value().value();
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{2, 10}));
  EXPECT_EQ(batch.data[0][0].item<int64_t>(), 10);
  EXPECT_EQ(batch.target[1][9].item<int64_t>(), 40);
}

TEST(TokenDataset, RefusesAnotherPlaceThanItsOwn) {
  const auto dataset = TokenDataset::Create({{{WriteCounting("place", 0, 11)}}}, {.block = 10}).value();
  at::Generator random = at::detail::createCPUGenerator(0);
  at::Tensor data = at::empty({10}, at::kLong), small = at::empty({9}, at::kLong), ints = at::empty({10}, at::kInt);
  EXPECT_EQ(dataset->GetInto(0, random, data, small).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(dataset->GetInto(0, random, ints, data).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
