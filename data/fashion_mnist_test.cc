#include "lockstep/data/fashion_mnist.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/testing/idx_files.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/sampler/evaluation_sampler.h"

namespace lockstep::data {
namespace {

using ::lockstep::data::testing::Gzip;
using ::lockstep::data::testing::Idx;
using ::lockstep::data::testing::TestFolder;
using ::lockstep::data::testing::WriteFile;
using ::testing::ElementsAre;
using Split = FashionMnist::Split;

constexpr char kTrainImages[] = "train-images-idx3-ubyte";
constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";

// `count` images that hold every value of a pixel between them.
std::string Images(uint32_t count) {
  std::vector<uint8_t> pixels(count * 784);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i + i / 784 * 5);
  return Idx({count, 28, 28}, pixels);
}

absl::Status LoadError(Split split = Split::kTrain) { return FashionMnist::Load(TestFolder(), split).status(); }

FashionMnist Small() {
  WriteFile(kTrainImages, Images(4));
  WriteFile(kTrainLabels, Idx({4}, {9, 0, 3, 7}));
  return FashionMnist::Load(TestFolder(), Split::kTrain).value();
}

// Bit by bit what ToTensor gives, by way of ATen.
at::Tensor ToTensor(const FashionMnist& dataset, const at::Tensor& indices) {
  return dataset.images().index_select(0, indices).to(at::kFloat).div(255).unsqueeze(1);
}

TEST(FashionMnist, LoadsPlainAndGzipFilesOfEitherSplit) {
  WriteFile("t10k-images-idx3-ubyte.gz", Gzip(Images(3)));
  WriteFile("t10k-labels-idx1-ubyte", Idx({3}, {9, 0, 3}));
  const absl::StatusOr<FashionMnist> dataset = FashionMnist::Load(TestFolder(), Split::kTest);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->images().scalar_type(), at::kByte);
  EXPECT_THAT(dataset->images().sizes().vec(), ElementsAre(3, 28, 28));
  EXPECT_TRUE(dataset->labels().equal(at::tensor({9, 0, 3}, at::kLong)));
  EXPECT_EQ(dataset->size(), 3);
}

TEST(FashionMnist, BatchIsBitEqualToToTensor) {
  const FashionMnist dataset = Small();
  const Example batch = dataset.Batch({3, 0, 0});
  EXPECT_THAT(batch.data.sizes().vec(), ElementsAre(3, 1, 28, 28));
  EXPECT_EQ(batch.data.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.data.equal(ToTensor(dataset, at::tensor({3, 0, 0}, at::kLong))));
  EXPECT_TRUE(batch.target.equal(at::tensor({7, 9, 9}, at::kLong)));
  EXPECT_EQ(dataset.Batch({0}).data.max().item<float>(), 1.0f);
}

TEST(FashionMnist, AnEmptyBatchHasItsShape) {
  const Example batch = Small().Batch({});
  EXPECT_THAT(batch.data.sizes().vec(), ElementsAre(0, 1, 28, 28));
  EXPECT_THAT(batch.target.sizes().vec(), ElementsAre(0));
}

TEST(FashionMnist, BatchThrowsIndexErrorOutOfRange) {
  const FashionMnist dataset = Small();
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const c10::IndexError& error) {
      return error.what_without_backtrace();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([&] { dataset.Batch({0, 4}); }), "FashionMnist: expected an index in [0, 4), found 4");
  EXPECT_EQ(message([&] { dataset.Batch({-1}); }), "FashionMnist: expected an index in [0, 4), found -1");
}

// The sizes of a loader's batches; checks that they are `expected`, in its order.
template <typename Dataset>
std::vector<int64_t> BatchSizes(const Dataset& dataset, size_t workers, const Example& expected) {
  auto loader = torch::data::make_data_loader(dataset, torch::data::samplers::SequentialSampler(*dataset.size()),
                                              torch::data::DataLoaderOptions().batch_size(3).workers(workers));
  std::vector<int64_t> sizes;
  int64_t done = 0;
  for (const auto& batch : *loader) {
    sizes.push_back(batch.data.size(0));
    EXPECT_TRUE(batch.data.equal(expected.data.slice(0, done, done + sizes.back())));
    EXPECT_TRUE(batch.target.equal(expected.target.slice(0, done, done + sizes.back())));
    done += sizes.back();
  }
  return sizes;
}

TEST(FashionMnist, GivesLibTorchsLoaderWholeBatches) {
  const FashionMnist dataset = Small();
  for (const size_t workers : {0, 2}) {
    EXPECT_THAT(BatchSizes(TorchBatchDataset(dataset), workers, dataset.Batch({0, 1, 2, 3})), ElementsAre(3, 1));
  }
}

TEST(FashionMnist, TakesLibTorchsTransforms) {
  const FashionMnist dataset = Small();
  Example expected = dataset.Batch({0, 1, 2, 3});
  expected.data.sub_(0.5).div_(0.25);
  auto mapped = TorchDataset(&dataset)
                    .map(torch::data::transforms::Normalize<>(0.5, 0.25))
                    .map(torch::data::transforms::Stack<>());
  EXPECT_THAT(BatchSizes(mapped, 0, expected), ElementsAre(3, 1));
}

TEST(FashionMnist, GetGivesOneImageAndItsLabel) {
  const FashionMnist dataset = Small();
  at::Generator unused;
  const Example example = dataset.Get(2, unused).value();
  EXPECT_TRUE(example.data.equal(dataset.Batch({2}).data[0]));
  EXPECT_EQ(example.target.dim(), 0);
  EXPECT_EQ(example.target.item<int64_t>(), 3);
  EXPECT_EQ(dataset.Get(99, unused).status(),
            absl::OutOfRangeError("FashionMnist: expected an index in [0, 4), found 99"));
}

TEST(FashionMnist, GivesALoaderTheSameBatches) {
  const FashionMnist dataset = Small();
  auto sampler = sampler::EvaluationSampler::Create(4, {}).value();
  LoaderOptions options;
  options.batch_size = 3;
  const auto loader = Loader::Create(&dataset, &sampler, options).value();
  ASSERT_EQ(loader->Start(/*epoch=*/0), absl::OkStatus());
  for (const std::vector<int64_t>& indices : {std::vector<int64_t>{0, 1, 2}, std::vector<int64_t>{3}}) {
    const std::optional<Example> batch = loader->Next().value();
    ASSERT_TRUE(batch);
    EXPECT_TRUE(batch->data.equal(dataset.Batch(indices).data));
    EXPECT_TRUE(batch->target.equal(dataset.Batch(indices).target));
  }
  EXPECT_FALSE(loader->Next().value());
}

TEST(FashionMnist, GetIntoWritesToAnyMemoryOfItsShape) {
  const FashionMnist dataset = Small();
  at::Generator unused;
  const Example expected = dataset.Get(2, unused).value();
  at::Tensor target = at::empty({}, at::kLong);
  at::Tensor rows = at::empty({1, 28, 28}), columns = at::empty({1, 28, 28}).transpose(1, 2), small = at::empty({1});
  for (at::Tensor* data : {&rows, &columns}) {
    ASSERT_EQ(dataset.GetInto(2, unused, *data, target), absl::OkStatus());
    EXPECT_TRUE(data->equal(expected.data));
    EXPECT_TRUE(target.equal(expected.target));
  }
  EXPECT_EQ(dataset.GetInto(2, unused, small, target).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(dataset.GetInto(4, unused, rows, target),
            absl::OutOfRangeError("FashionMnist: expected an index in [0, 4), found 4"));
}

TEST(FashionMnist, SaysWhereMissingFilesComeFrom) {
  WriteFile(kTrainImages, Images(4));
  const std::string labels = TestFolder() + "/" + kTrainLabels;
  EXPECT_EQ(LoadError(),
            absl::NotFoundError(
                "Fashion-MNIST: found neither " + labels + " nor " + labels +
                ".gz: name the directory that has its four files, which is "
                "/usr/share/datasets/fashion-mnist once Debian's package dataset-fashion-mnist is installed"));
  EXPECT_EQ(LoadError(Split::kTest).code(), absl::StatusCode::kNotFound);
}

TEST(FashionMnist, PassesOnWhatIsWrongWithAFile) {
  const std::string path = WriteFile(kTrainImages, Images(4).substr(0, 1000));
  EXPECT_EQ(LoadError(), absl::DataLossError(path + ": expected 3136 bytes for sizes 4 x 28 x 28, found 984"));
}

TEST(FashionMnist, ChecksTheImagesSizes) {
  const std::string path = WriteFile(kTrainImages, Idx({2, 27, 28}, std::vector<uint8_t>(2 * 27 * 28)));
  WriteFile(kTrainLabels, Idx({2}, {0, 1}));
  const std::string expected = path + ": expected at least one image of 28 x 28, found sizes ";
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(expected + "2 x 27 x 28"));
  WriteFile(kTrainImages, Idx({0, 28, 28}, {}));
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(expected + "0 x 28 x 28"));
  WriteFile(kTrainImages, Idx({784}, std::vector<uint8_t>(784)));
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(expected + "784"));
}

TEST(FashionMnist, ChecksThatThereIsALabelForEachImage) {
  const std::string images = WriteFile(kTrainImages, Images(4));
  const std::string labels = WriteFile(kTrainLabels, Idx({3}, {0, 1, 2}));
  const std::string expected = labels + ": expected 4 labels, one for each image in " + images + ", found sizes ";
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(expected + "3"));
  WriteFile(kTrainLabels, Idx({4, 1}, {0, 1, 2, 3}));
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(expected + "4 x 1"));
}

TEST(FashionMnist, ChecksThatLabelsAreClasses) {
  WriteFile(kTrainImages, Images(4));
  const std::string labels = WriteFile(kTrainLabels, Idx({4}, {0, 9, 10, 255}));
  EXPECT_EQ(LoadError(), absl::InvalidArgumentError(labels + ": expected labels in [0, 9], found 10 at index 2"));
}

class TheRealOne : public ::testing::Test {
 protected:
  static FashionMnist Load(Split split) {
    return FashionMnist::Load(std::string(std::getenv("TEST_SRCDIR")) + "/lockstep_fashion_mnist", split).value();
  }
};

TEST_F(TheRealOne, HasSixThousandTrainingImagesOfEachClass) {
  const FashionMnist dataset = Load(Split::kTrain);
  EXPECT_THAT(dataset.images().sizes().vec(), ElementsAre(60000, 28, 28));
  EXPECT_TRUE(dataset.labels().bincount().equal(at::tensor({6000}, at::kLong).expand({10})));
  EXPECT_TRUE(dataset.labels().slice(0, 0, 5).equal(at::tensor({9, 0, 0, 3, 0}, at::kLong)));
  // The mean and deviation that everybody normalises with.
  const at::Tensor pixels = dataset.images().to(at::kDouble) / 255;
  EXPECT_NEAR(pixels.mean().item<double>(), 0.2860, 5e-5);
  EXPECT_NEAR(pixels.std().item<double>(), 0.3530, 5e-5);
}

TEST_F(TheRealOne, HasAThousandTestImagesOfEachClass) {
  const FashionMnist dataset = Load(Split::kTest);
  EXPECT_THAT(dataset.images().sizes().vec(), ElementsAre(10000, 28, 28));
  EXPECT_TRUE(dataset.labels().bincount().equal(at::tensor({1000}, at::kLong).expand({10})));
  EXPECT_TRUE(dataset.labels().slice(0, 0, 5).equal(at::tensor({9, 2, 1, 1, 6}, at::kLong)));
}

TEST_F(TheRealOne, BatchesAreBitEqualToToTensorOverAWholeEpoch) {
  const FashionMnist dataset = Load(Split::kTest);
  const at::Tensor indices = at::arange(9999, -1, -1, at::kLong);
  for (const at::Tensor& part : indices.split(512)) {
    const Example batch = dataset.Batch({part.data_ptr<int64_t>(), static_cast<size_t>(part.numel())});
    ASSERT_TRUE(batch.data.equal(ToTensor(dataset, part)));
    ASSERT_TRUE(batch.target.equal(dataset.labels().index_select(0, part)));
  }
}

}  // namespace
}  // namespace lockstep::data
