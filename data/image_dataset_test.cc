#include "lockstep/data/image_dataset.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/testing/jpeg_files.h"
#include "lockstep/data/testing/png_files.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kImages = 6;

at::Generator Seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

// Two classes of three images, each of its own size.
class ImageDatasetTest : public ::testing::Test {
 protected:
  ImageDatasetTest() {
    mkdir(root_.c_str(), 0777);
    for (int64_t i = 0; i < kImages; ++i) {
      mkdir(absl::StrCat(root_, "/", i / 3).c_str(), 0777);
      WriteFile(Path(i), testing::Jpeg({{30 + i, 60 - i}}));
    }
  }

  std::string Path(int64_t index) const { return absl::StrCat(root_, "/", index / 3, "/", index, ".jpg"); }

  ImageDataset Open(std::vector<Transform> steps, const ImageDatasetOptions& options = {}) const {
    return ImageDataset::Create(ImageFolder::Create(root_).value(), ImageTransform::Create(std::move(steps)).value(),
                                options)
        .value();
  }

  const std::string root_ =
      absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::vector<Transform> Train() { return {RandomResizedCrop(24), RandomHorizontalFlip()}; }

at::Tensor ImageOf(const ImageDataset& dataset, int64_t index, uint64_t seed) {
  at::Generator random = Seeded(seed);
  return dataset.Get(index, random).value().data;
}

absl::Status WhyNot(const ImageDataset& dataset, int64_t index) {
  at::Generator random = Seeded(0);
  return dataset.Get(index, random).status();
}

TEST_F(ImageDatasetTest, GivesEachImageAndItsClass) {
  const ImageDataset dataset = Open({});
  ASSERT_EQ(dataset.size(), kImages);
  at::Generator random = Seeded(0);
  for (int64_t i = 0; i < kImages; ++i) {
    const Example example = dataset.Get(i, random).value();
    EXPECT_EQ(example.data.sizes(), (std::vector<int64_t>{3, 30 + i, 60 - i}));
    EXPECT_TRUE(example.target.equal(at::scalar_tensor(i / 3, at::kLong)));
  }
}

// The peer test compares pixels with torchvision's. Here a part decoded alone is a part of the whole.
TEST_F(ImageDatasetTest, DecodesThePartThatIsWantedAsItIsInTheWhole) {
  const at::Tensor whole = ImageOf(Open({}), 0, 0), part = ImageOf(Open({CenterCrop(10)}), 0, 0);
  EXPECT_TRUE(part.equal(whole.narrow(1, 10, 10).narrow(2, 25, 10)));
}

TEST_F(ImageDatasetTest, AugmentsByTheGeneratorAlone) {
  const ImageDataset dataset = Open(Train());
  EXPECT_TRUE(ImageOf(dataset, 2, 7).equal(ImageOf(dataset, 2, 7)));
  EXPECT_FALSE(ImageOf(dataset, 2, 7).equal(ImageOf(dataset, 2, 8)));
}

TEST_F(ImageDatasetTest, WritesTheSameIntoABatch) {
  const ImageDataset dataset = Open(Train());
  const at::Tensor images = at::zeros({kImages, 3, 24, 24}), targets = at::zeros({kImages}, at::kLong);
  for (int64_t i = 0; i < kImages; ++i) {
    at::Generator random = Seeded(i);
    at::Tensor image = images[i], target = targets[i];
    ASSERT_EQ(dataset.GetInto(i, random, image, target), absl::OkStatus());
    EXPECT_TRUE(images[i].equal(ImageOf(dataset, i, i)));
  }
  EXPECT_TRUE(targets.equal(at::tensor({0, 0, 0, 1, 1, 1}, at::kLong)));
}

ImageDatasetOptions Scaled() {
  ImageDatasetOptions options;
  options.scaled_decode = true;
  return options;
}

// Returns an image of slopes between 4 x 6 random colours.
std::string Photograph() {
  const ImageSize size = {600, 896};
  const at::Tensor colors = at::rand({1, 3, 4, 6}, Seeded(0)) * 255;
  const at::Tensor image = at::upsample_bilinear2d(colors, {size.height, size.width}, true)[0];
  const at::Tensor bytes = image.permute({1, 2, 0}).to(at::kByte).contiguous();
  testing::JpegOptions options;
  options.size = size;
  options.sampling = {{2, 2}};
  options.pixels.assign(bytes.data_ptr<uint8_t>(), bytes.data_ptr<uint8_t>() + bytes.numel());
  return testing::Jpeg(options);
}

// In levels of 256, on average. Expects the same size and draws, and other pixels.
double DifferenceOfScaled(const ImageDataset& exact, const ImageDataset& scaled, uint64_t seed) {
  at::Generator random = Seeded(seed), same_random = Seeded(seed);
  const at::Tensor image = exact.Get(0, random)->data, other = scaled.Get(0, same_random)->data;
  EXPECT_EQ(image.sizes(), other.sizes());
  EXPECT_FALSE(image.equal(other));
  EXPECT_TRUE(random.get_state().equal(same_random.get_state()));
  return (image - other).abs().mean().item<double>() * 255;
}

// A part that does not begin and end with a pixel of the smaller image is moved by up to half of one.
TEST_F(ImageDatasetTest, ScaledDecodeGivesNearlyTheSameImageFromTheSameDraws) {
  WriteFile(Path(0), Photograph());
  const std::vector<Transform> random_part = {RandomResizedCrop(64), RandomHorizontalFlip()};
  const ImageDataset exact = Open(random_part), scaled = Open(random_part, Scaled());
  for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_LT(DifferenceOfScaled(exact, scaled, seed), 2) << seed;
}

TEST_F(ImageDatasetTest, ScaledDecodeKeepsAWholeImageInItsPlace) {
  WriteFile(Path(0), Photograph());
  const std::vector<Transform> steps = {Resize(64), CenterCrop(56)};
  EXPECT_LT(DifferenceOfScaled(Open(steps), Open(steps, Scaled()), 0), 0.5);
}

// The image is 30 x 60.
TEST_F(ImageDatasetTest, ScaledDecodeNeedsTwiceThePixelsOfTheResultEachWay) {
  const auto is_exact = [&](ImageSize result) {
    return ImageOf(Open({Resize(result)}), 0, 0).equal(ImageOf(Open({Resize(result)}, Scaled()), 0, 0));
  };
  EXPECT_FALSE(is_exact({15, 30}));
  EXPECT_TRUE(is_exact({16, 30}));
  EXPECT_TRUE(is_exact({15, 31}));
  EXPECT_TRUE(is_exact({45, 90}));
}

TEST_F(ImageDatasetTest, ScaledDecodeIsExactForOtherFormats) {
  std::string rows;
  for (int row = 0; row < 40; ++row) {
    rows += '\0';
    for (int i = 0; i < 60 * 3; ++i) rows += static_cast<char>(i * row);
  }
  WriteFile(Path(0), testing::Png({{40, 60}}, rows));
  EXPECT_TRUE(ImageOf(Open({Resize(10)}), 0, 0).equal(ImageOf(Open({Resize(10)}, Scaled()), 0, 0)));
}

TEST_F(ImageDatasetTest, RefusesAPlaceOfAnotherSizeAndNamesTheFile) {
  at::Generator random = Seeded(0);
  at::Tensor image = at::zeros({3, 24, 25}), target = at::zeros({}, at::kLong);
  const absl::Status status = Open(Train()).GetInto(1, random, image, target);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              StartsWith(Path(1) + ": ImageTransform: expected a dense Float [3, 24, 24] on cpu to write to, found"));
}

TEST_F(ImageDatasetTest, IsTheSameInManyThreads) {
  const ImageDataset dataset = Open(Train());
  std::vector<std::vector<at::Tensor>> images(4);
  std::vector<std::thread> threads;
  for (std::vector<at::Tensor>& mine : images) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 5 * kImages; ++i) mine.push_back(ImageOf(dataset, i % kImages, i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<at::Tensor>& mine : images)
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_TRUE(mine[i].equal(images[0][i]));
}

TEST_F(ImageDatasetTest, NamesAFileThatIsDamagedOrGoneAndReadsTheNext) {
  const ImageDataset dataset = Open(Train());
  WriteFile(Path(0), "no image");
  WriteFile(Path(1), testing::Jpeg().substr(0, 700));
  ASSERT_EQ(std::remove(Path(2).c_str()), 0);
  EXPECT_THAT(std::string(WhyNot(dataset, 0).message()), StartsWith(Path(0) + ": "));
  EXPECT_EQ(WhyNot(dataset, 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(WhyNot(dataset, 1).message()), StartsWith(Path(1) + ": "));
  EXPECT_EQ(WhyNot(dataset, 2).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(WhyNot(dataset, 2).message()), StartsWith(Path(2) + ": cannot be opened: No such file"));
  EXPECT_EQ(WhyNot(dataset, 3), absl::OkStatus());
}

TEST_F(ImageDatasetTest, NamesAFifoOrADeviceInsteadOfWaitingForIt) {
  const ImageDataset dataset = Open(Train());
  for (const int64_t index : {0, 1}) ASSERT_EQ(std::remove(Path(index).c_str()), 0);
  ASSERT_EQ(mkfifo(Path(0).c_str(), 0600), 0);
  ASSERT_EQ(symlink("/dev/zero", Path(1).c_str()), 0);
  EXPECT_EQ(WhyNot(dataset, 0), absl::InvalidArgumentError(Path(0) + ": expected a regular file, found a FIFO"));
  EXPECT_EQ(WhyNot(dataset, 1),
            absl::InvalidArgumentError(Path(1) + ": expected a regular file, found a character device"));
}

TEST_F(ImageDatasetTest, RefusesImagesWithMorePixelsThanAllowed) {
  const absl::Status status = WhyNot(Open(Train(), {{1000}}), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0.jpg: "));
}

TEST_F(ImageDatasetTest, RefusesAFileOfMoreThanAGibibyteUnread) {
  const int64_t bytes = (int64_t{1} << 30) + 1;
  ASSERT_EQ(truncate(Path(0).c_str(), bytes), 0);
  EXPECT_EQ(WhyNot(Open(Train()), 0),
            absl::ResourceExhaustedError(Path(0) + ": expected at most 1073741824 bytes, found 1073741825"));
}

TEST_F(ImageDatasetTest, RefusesAnIndexOutOfRange) {
  const ImageDataset dataset = Open({});
  EXPECT_EQ(WhyNot(dataset, 6), absl::OutOfRangeError("ImageDataset: expected an index in [0, 6), found 6"));
  EXPECT_EQ(WhyNot(dataset, -1), absl::OutOfRangeError("ImageDataset: expected an index in [0, 6), found -1"));
}

TEST_F(ImageDatasetTest, RefusesALimitThatAllowsNoImage) {
  EXPECT_EQ(
      ImageDataset::Create(ImageFolder::Create(root_).value(), ImageTransform::Create({}).value(), {{0}}).status(),
      absl::InvalidArgumentError("ImageDataset: expected max_pixels of at least 1, found 0"));
}

}  // namespace
}  // namespace lockstep::data
