#include "lockstep/data/transforms.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/data/image_transform.h"

namespace lockstep::data {

// For gtest's messages and EXPECT_EQ.
bool operator==(const Rectangle& a, const Rectangle& b) {
  return std::tie(a.top, a.left, a.height, a.width) == std::tie(b.top, b.left, b.height, b.width);
}
bool operator==(const ImageSize& a, const ImageSize& b) { return a.height == b.height && a.width == b.width; }
std::ostream& operator<<(std::ostream& out, const Rectangle& r) {
  return out << r.height << " x " << r.width << " at (" << r.top << ", " << r.left << ")";
}
std::ostream& operator<<(std::ostream& out, const ImageSize& s) { return out << s.height << " x " << s.width; }

namespace {

constexpr ImageSize kPhotograph = {375, 500};

at::Generator Seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

ImageTransform Make(std::vector<Transform> steps, const TensorFormat& format = {}) {
  return ImageTransform::Create(std::move(steps), format).value();
}

Geometry Drawn(std::vector<Transform> steps, ImageSize image, uint64_t seed = 0) {
  at::Generator random = Seeded(seed);
  return Make(std::move(steps)).Draw(image, random).value();
}

std::string WhyNot(std::vector<Transform> steps, const TensorFormat& format = {}) {
  const absl::StatusOr<ImageTransform> transform = ImageTransform::Create(std::move(steps), format);
  EXPECT_EQ(transform.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(transform.status().message());
}

// An image of 4 x 5 whose bytes count up from 0.
std::vector<uint8_t> Counting() {
  std::vector<uint8_t> bytes(4 * 5 * 3);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}

absl::Status WriteCounting(const ImageTransform& transform, const Geometry& geometry, const at::Tensor& out) {
  const std::vector<uint8_t> bytes = Counting();
  return transform.Write({bytes.data(), 15, {0, 0, 4, 5}}, geometry, out);
}

at::Tensor Transformed(const ImageTransform& transform) {
  at::Generator random = Seeded(0);
  const Geometry geometry = transform.Draw({4, 5}, random).value();
  const at::Tensor out = transform.Empty(geometry);
  EXPECT_EQ(WriteCounting(transform, geometry, out), absl::OkStatus());
  return out;
}

at::Tensor CountingTensor() { return at::arange(60, at::kByte).view({4, 5, 3}).permute({2, 0, 1}); }

// Python gives these values after torch.manual_seed(0). The peer test compares hundreds.
TEST(RandomResizedCrop, DrawsTorchvisionsCrops) {
  const ImageTransform train = Make({RandomResizedCrop(224), RandomHorizontalFlip()});
  at::Generator random = Seeded(0);
  const std::vector<std::pair<Rectangle, bool>> expected = {
      {{17, 80, 294, 343}, true}, {{11, 116, 354, 352}, false}, {{10, 21, 282, 267}, true}};
  for (const auto& [source, mirrored] : expected) {
    const Geometry geometry = train.Draw(kPhotograph, random).value();
    EXPECT_EQ(geometry.source, source);
    EXPECT_EQ(geometry.resized, (ImageSize{224, 224}));
    EXPECT_EQ(geometry.window, (Rectangle{0, 0, 224, 224}));
    EXPECT_EQ(geometry.mirrored, mirrored);
  }
}

TEST(RandomResizedCrop, TakesTheMiddleWhereNoneOfTenDrawsFits) {
  EXPECT_EQ(Drawn({RandomResizedCrop(224)}, {3, 500}).source, (Rectangle{0, 248, 3, 4}));
  EXPECT_EQ(Drawn({RandomResizedCrop(224)}, {500, 3}).source, (Rectangle{248, 0, 4, 3}));
}

TEST(Resize, GivesTheSmallerEdgeItsLengthAndRoundsTheOtherDown) {
  EXPECT_EQ(Drawn({Resize(256)}, kPhotograph).resized, (ImageSize{256, 341}));
  EXPECT_EQ(Drawn({Resize(256)}, {500, 375}).resized, (ImageSize{341, 256}));
  EXPECT_EQ(Drawn({Resize(256)}, {3, 1000}).resized, (ImageSize{256, 85333}));
  EXPECT_EQ(Drawn({Resize({30, 40})}, kPhotograph).resized, (ImageSize{30, 40}));
}

// Python's round() takes 58.5 to 58 and 59.5 to 60.
TEST(CenterCrop, RoundsHalvesToEven) {
  EXPECT_EQ(Drawn({Resize(256), CenterCrop(224)}, kPhotograph).window, (Rectangle{16, 58, 224, 224}));
  EXPECT_EQ(Drawn({CenterCrop(224)}, {224, 343}).window, (Rectangle{0, 60, 224, 224}));
}

TEST(CenterCrop, ReachesBeyondASmallerImage) {
  EXPECT_EQ(Drawn({CenterCrop(10)}, {7, 20}).window, (Rectangle{-1, 5, 10, 10}));
  EXPECT_EQ(Drawn({RandomHorizontalFlip(1), CenterCrop(10)}, {20, 7}).window, (Rectangle{5, -2, 10, 10}));
}

TEST(ImageTransform, RefusesWhatIsNotOneCropOneResizeAndOneWindow) {
  EXPECT_EQ(WhyNot({Resize(256), RandomResizedCrop(224)}),
            "RandomResizedCrop: expected an image that is not resized yet, found one that was resized to 256 x 383");
  EXPECT_EQ(WhyNot({RandomHorizontalFlip(), Resize(256)}),
            "Resize: expected to come before flips, found a mirrored image");
  EXPECT_EQ(WhyNot({CenterCrop(1100), Resize(256)}),
            "Resize: expected an image without black around it, found one that CenterCrop padded");
  EXPECT_TRUE(ImageTransform::Create({CenterCrop(300), Resize(256), CenterCrop(224)}).ok());
}

TEST(ImageTransform, RefusesParametersOutOfRange) {
  EXPECT_EQ(WhyNot({RandomResizedCrop(0)}), "RandomResizedCrop: expected a positive size, found 0 x 0");
  EXPECT_EQ(WhyNot({RandomResizedCrop(9, {{0.5, 0.1}})}),
            "RandomResizedCrop: expected a scale {smallest, largest}, found {0.5, 0.1}");
  EXPECT_EQ(WhyNot({RandomResizedCrop(9, {{0.5, 1}, {0, 1}})}),
            "RandomResizedCrop: expected a positive ratio {smallest, largest}, found {0, 1}");
  EXPECT_EQ(WhyNot({RandomHorizontalFlip(1.5)}), "RandomHorizontalFlip: expected a probability, found 1.5");
  EXPECT_EQ(WhyNot({Resize(-1)}), "Resize: expected a positive size, found -1 x -1");
  EXPECT_EQ(WhyNot({CenterCrop(0)}), "CenterCrop: expected a positive size, found 0");
}

TEST(ImageTransform, RefusesFormatsThatItDoesNotWrite) {
  EXPECT_EQ(WhyNot({}, {at::kHalf}), "ImageTransform: expected dtype Float or Byte, found Half");
  EXPECT_EQ(WhyNot({}, {at::kFloat, at::MemoryFormat::ChannelsLast3d}),
            "ImageTransform: expected memory_format Contiguous or ChannelsLast, found ChannelsLast3d");
  EXPECT_EQ(WhyNot({}, {at::kFloat, at::MemoryFormat::Contiguous, {}, {1, 0, 1}}),
            "ImageTransform: expected a std that is not 0, found 0");
  EXPECT_EQ(WhyNot({}, {at::kByte, at::MemoryFormat::Contiguous, kImageNetMean}),
            "ImageTransform: expected the default mean and std with dtype Byte, found others");
}

TEST(ImageTransform, RefusesStepsThatLeaveTheImage) {
  const Transform outside = [](Geometry& geometry, at::Generator&) {
    geometry.source.left = 1;
    return absl::OkStatus();
  };
  const Transform empty = [](Geometry& geometry, at::Generator&) {
    geometry.window.width = 0;
    return absl::OkStatus();
  };
  EXPECT_EQ(WhyNot({outside}),
            "ImageTransform: expected a source inside 1021 x 1531 at (0, 0), found 1021 x 1531 at (0, 1)");
  EXPECT_EQ(WhyNot({empty}), "ImageTransform: expected a window with pixels, found 1021 x 0 at (0, 0)");
}

TEST(ImageTransform, RefusesAnImageWithoutPixels) {
  at::Generator random = Seeded(0);
  EXPECT_EQ(Make({Resize(256)}).Draw({0, 5}, random).status(),
            absl::InvalidArgumentError("ImageTransform: expected an image with pixels, found 0 x 5"));
}

TEST(ImageTransform, StopsAtTheFirstErrorAndPassesItOn) {
  const Transform fails = [](Geometry&, at::Generator&) { return absl::UnavailableError("no luck"); };
  const Transform throws = [](Geometry&, at::Generator&) -> absl::Status { TORCH_CHECK(false, "never called"); };
  EXPECT_EQ(ImageTransform::Create({fails, throws}).status(), absl::UnavailableError("no luck"));
  EXPECT_EQ(ImageTransform::Create({throws}).status(), absl::InternalError("ImageTransform: never called"));
}

TEST(ImageTransform, WritesBytesAndFloatsInPlanesAndChannelsLast) {
  for (const at::MemoryFormat memory_format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor bytes = Transformed(Make({}, {at::kByte, memory_format}));
    EXPECT_TRUE(bytes.equal(CountingTensor()));
    EXPECT_EQ(bytes.stride(2), memory_format == at::MemoryFormat::Contiguous ? 1 : 3);
    const at::Tensor floats = Transformed(Make({}, {at::kFloat, memory_format, kImageNetMean, kImageNetStd}));
    const auto column = [](const std::array<double, 3>& v) { return at::tensor(v, at::kFloat).view({3, 1, 1}); };
    EXPECT_TRUE(
        floats.equal(CountingTensor().to(at::kFloat).div(255).sub_(column(kImageNetMean)).div_(column(kImageNetStd))));
    EXPECT_EQ(floats.stride(2), bytes.stride(2));
  }
}

TEST(ImageTransform, MirrorsAndPadsWithBlack) {
  const at::Tensor padded = at::constant_pad_nd(CountingTensor().flip({2}), {1, 2, 2, 2});
  for (const at::MemoryFormat memory_format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    EXPECT_TRUE(Transformed(Make({RandomHorizontalFlip(1), CenterCrop(8)}, {at::kByte, memory_format})).equal(padded));
    const at::Tensor normalized =
        Transformed(Make({RandomHorizontalFlip(1), CenterCrop(8)}, {at::kFloat, memory_format, {0.5, 0, 0}}));
    EXPECT_TRUE(normalized[0].equal(padded[0].to(at::kFloat).div(255).sub(0.5)));
  }
}

TEST(ImageTransform, WritesIntoAnImageOfABatch) {
  for (const at::MemoryFormat memory_format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor batch = at::zeros({3, 3, 4, 5}, at::kByte).contiguous(memory_format);
    EXPECT_EQ(WriteCounting(Make({}, {at::kByte}), WholeImage({4, 5}), batch[1]), absl::OkStatus());
    EXPECT_TRUE(batch[1].equal(CountingTensor()));
    EXPECT_EQ(batch[0].count_nonzero().item<int64_t>() + batch[2].count_nonzero().item<int64_t>(), 0);
  }
}

TEST(ImageTransform, RefusesATensorThatIsNotTheImages) {
  const ImageTransform transform = Make({});
  EXPECT_EQ(
      WriteCounting(transform, WholeImage({4, 5}), at::zeros({3, 4, 6})),
      absl::InvalidArgumentError("ImageTransform: expected a dense Float [3, 4, 5] on cpu to write to, found Float "
                                 "[3, 4, 6] with strides [24, 6, 1] on cpu"));
  EXPECT_FALSE(WriteCounting(transform, WholeImage({4, 5}), at::zeros({3, 4, 5}, at::kByte)).ok());
  EXPECT_FALSE(WriteCounting(transform, WholeImage({4, 5}), at::zeros({3, 5, 4}).transpose(1, 2)).ok());
}

TEST(ImageTransform, RefusesAViewOfOtherPixels) {
  const std::vector<uint8_t> bytes = Counting();
  const absl::Status status =
      Make({}).Write({bytes.data(), 15, {1, 0, 3, 5}}, WholeImage({4, 5}), at::zeros({3, 4, 5}));
  EXPECT_EQ(status,
            absl::InvalidArgumentError("ImageTransform: expected pixels of 4 x 5 at (0, 0), found 3 x 5 at (1, 0)"));
}

}  // namespace
}  // namespace lockstep::data
