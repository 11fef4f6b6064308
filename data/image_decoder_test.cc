#include "lockstep/data/image_decoder.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/internal/libjpeg.h"
#include "lockstep/data/testing/decoded.h"
#include "lockstep/data/testing/jpeg_files.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Jpeg;
using testing::JpegColors;
using testing::JpegOptions;
using testing::Pixels;
using testing::Whole;

std::vector<uint8_t> Part(const std::vector<uint8_t>& pixels, const ImageSize& size, const Rectangle& part) {
  std::vector<uint8_t> result;
  for (int64_t y = part.top; y < part.top + part.height; ++y) {
    const auto row = pixels.begin() + (y * size.width + part.left) * 3;
    result.insert(result.end(), row, row + part.width * 3);
  }
  return result;
}

class Random {
 public:
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(engine_); }
  Rectangle PartOf(const ImageSize& size) {
    const bool small = Below(3) == 0;
    Rectangle part;
    part.height = 1 + Below(small ? std::min<int64_t>(size.height, 4) : size.height);
    part.width = 1 + Below(small ? std::min<int64_t>(size.width, 4) : size.width);
    part.top = Below(size.height - part.height + 1);
    part.left = Below(size.width - part.width + 1);
    return part;
  }

 private:
  std::minstd_rand engine_;
};

// Returns the pixels that libjpeg makes of a whole file of one or of three colours.
std::vector<uint8_t> ByLibjpeg(const std::string& file, int64_t denominator) {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);  // which ends the program
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg.scale_denom = denominator;
  jpeg_start_decompress(&jpeg);
  std::vector<uint8_t> pixels(jpeg.output_height * jpeg.output_width * 3);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels.data() + jpeg.output_scanline * jpeg.output_width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  return pixels;
}

ImageSize ShrunkSize(const ImageSize& size, int64_t denominator) {
  return {(size.height + denominator - 1) / denominator, (size.width + denominator - 1) / denominator};
}

void ExpectPartsToEqual(const std::vector<uint8_t>& whole, const ImageSize& size, const std::string& file,
                        int64_t denominator) {
  ImageDecoder decoder;
  Random random;
  for (int i = 0; i < 10; ++i) {
    const Rectangle part = random.PartOf(size);
    ASSERT_EQ(Pixels(decoder, file, part, denominator), Part(whole, size, part))
        << part.width << "x" << part.height << " at (" << part.left << ", " << part.top << ") of " << size.width << "x"
        << size.height << ", shrunk by " << denominator;
  }
}

// At every scale.
void ExpectEveryPartToEqualTheWhole(const std::string& file, const ImageSize& full_size) {
  ImageDecoder decoder;
  for (const int64_t denominator : {1, 2, 4, 8}) {
    const ImageSize size = ShrunkSize(full_size, denominator);
    ExpectPartsToEqual(Pixels(decoder, file, Whole(size), denominator), size, file, denominator);
  }
}

void ExpectEveryPartToBeLibjpegs(const std::string& file, const ImageSize& full_size) {
  for (const int64_t denominator : {1, 2, 4, 8})
    ExpectPartsToEqual(ByLibjpeg(file, denominator), ShrunkSize(full_size, denominator), file, denominator);
}

// Checks parts of images of many sizes, whose colours are sampled as `sampling` says.
void ExpectPartsToBeLibjpegsWith(const std::vector<ImageSize>& sampling) {
  for (const ImageSize& size :
       {ImageSize{1, 1}, {5, 3}, {16, 16}, {40, 33}, {33, 70}, {130, 19}, {97, 210}, {229, 411}}) {
    JpegOptions options;
    options.size = size;
    options.sampling = sampling;
    ExpectEveryPartToBeLibjpegs(Jpeg(options), options.size);
    options.restart_interval = 2;
    ExpectEveryPartToBeLibjpegs(Jpeg(options), options.size);
    options.progressive = true;
    ExpectEveryPartToBeLibjpegs(Jpeg(options), options.size);
  }
}

TEST(ImageDecoder, EveryPartOf444IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{1, 1}}); }
TEST(ImageDecoder, EveryPartOf422IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{1, 2}}); }
TEST(ImageDecoder, EveryPartOf420IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{2, 2}}); }
TEST(ImageDecoder, EveryPartOf440IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{2, 1}}); }
TEST(ImageDecoder, EveryPartOf411IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{1, 4}}); }
TEST(ImageDecoder, EveryPartOf410IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{2, 4}}); }
// Scaled, the colours have more columns than jpeg_crop_scanline() knows.
TEST(ImageDecoder, EveryPartOf2x4IsLibjpegsAtEveryScale) { ExpectPartsToBeLibjpegsWith({{4, 2}}); }
TEST(ImageDecoder, EveryPartOfUnevenSamplingIsLibjpegsAtEveryScale) {
  ExpectPartsToBeLibjpegsWith({{2, 2}, {2, 1}, {1, 2}});
  ExpectPartsToBeLibjpegsWith({{1, 1}, {2, 2}, {2, 2}});
}

TEST(ImageDecoder, EveryPartOfEveryColourSpaceHasThePixelsOfTheWhole) {
  for (const JpegColors colors : {JpegColors::kGrey, JpegColors::kRgb, JpegColors::kCmyk, JpegColors::kYcck}) {
    JpegOptions options;
    options.colors = colors;
    ExpectEveryPartToEqualTheWhole(Jpeg(options), options.size);
  }
}

TEST(ImageDecoder, EveryPartOfAProgressiveFileThatLacksScansIsLibjpegsAtEveryScale) {
  JpegOptions options;
  options.size = {97, 110};
  options.progressive = true;
  const std::string file = Jpeg(options);
  const size_t third_scan = file.find("\xff\xda", file.find("\xff\xda", file.find("\xff\xda") + 1) + 1);
  ExpectEveryPartToBeLibjpegs(file.substr(0, third_scan) + "\xff\xd9", options.size);
}

std::vector<uint8_t> PixelOf(JpegColors colors, const std::vector<uint8_t>& stored) {
  JpegOptions options;
  options.size = {1, 1};
  options.colors = colors;
  options.pixels = stored;
  options.quality = 100;
  ImageDecoder decoder;
  return Pixels(decoder, Jpeg(options), {0, 0, 1, 1});
}

TEST(ImageDecoder, GreyIsThreeEqualColours) { EXPECT_THAT(PixelOf(JpegColors::kGrey, {77}), ElementsAre(77, 77, 77)); }

TEST(ImageDecoder, RgbThatWasStoredAsRgbStaysRgb) {
  EXPECT_THAT(PixelOf(JpegColors::kRgb, {10, 200, 77}), ElementsAre(10, 200, 77));
}

TEST(ImageDecoder, InkIsStoredInvertedAsAdobeDoes) {
  for (const JpegColors colors : {JpegColors::kCmyk, JpegColors::kYcck}) {
    EXPECT_THAT(PixelOf(colors, {255, 255, 255, 255}), ElementsAre(255, 255, 255));
    EXPECT_THAT(PixelOf(colors, {255, 255, 255, 0}), ElementsAre(0, 0, 0));
  }
  EXPECT_THAT(PixelOf(JpegColors::kCmyk, {0, 255, 255, 255}), ElementsAre(0, 255, 255));
  EXPECT_THAT(PixelOf(JpegColors::kCmyk, {200, 100, 50, 128}), ElementsAre(100, 50, 25));
}

TEST(ImageDecoder, AFileCutAnywhereIsTruncatedWhicheverPartIsWanted) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  for (size_t size = 3; size < file.size(); ++size) {
    const absl::Status status = decoder.Open(absl::string_view(file).substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_THAT(status.message(), HasSubstr("it is truncated")) << size;
  }
  EXPECT_EQ(ErrorOf(file.substr(0, file.size() - 1)).message(),
            absl::StrCat("expected the end marker of JPEG, found the end of the file after ", file.size() - 1,
                         " bytes without one: it is truncated"));
}

// As some phones write.
TEST(ImageDecoder, ATrailerInPlaceOfTheEndMarkerIsPassedOverAsInPillow) {
  const std::string file = Jpeg();
  const std::string without_end = file.substr(0, file.size() - 2);
  const Rectangle part = {3, 5, 10, 12};
  ImageDecoder decoder;
  for (const std::string& trailer : {std::string(100, '\0'), std::string(9000, '\0'), std::string("a trailer"),
                                     absl::StrCat("\xff\xe1", absl::string_view("\xf0\0", 2), std::string(100, '\0'))})
    EXPECT_EQ(Pixels(decoder, without_end + trailer, part), Pixels(decoder, file, part));
  EXPECT_EQ(ErrorOf(without_end + file).code(), absl::StatusCode::kDataLoss);
}

TEST(ImageDecoder, AFileOfSeveralScansNeedsItsEndMarkerAsInPillow) {
  JpegOptions options;
  options.progressive = true;
  std::string file = Jpeg(options);
  file.replace(file.size() - 2, 2, 100, '\0');
  EXPECT_EQ(ErrorOf(file).message(), absl::StrCat("expected the end marker of JPEG, found the end of the file after ",
                                                  file.size(), " bytes without one: it is truncated"));
}

TEST(ImageDecoder, AFileWithoutItsEndMarkerHasTheLimitOfPixels) {
  std::string file = Jpeg();
  file.replace(file.size() - 2, 2, 100, '\0');
  ImageDecoderOptions options;
  options.max_pixels = 10;
  EXPECT_EQ(ErrorOf(file, options).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ImageDecoder, AnEndMarkerInACommentIsNotTheEnd) {
  JpegOptions options;
  options.progressive = true;  // and therefore needs its end marker
  std::string file = Jpeg(options);
  file.resize(file.size() - 2);
  file += absl::StrCat("\xff\xfe", absl::string_view("\0\x10", 2), "\xff\xd9");
  EXPECT_EQ(ErrorOf(file).message(), absl::StrCat("expected the end marker of JPEG, found the end of the file after ",
                                                  file.size(), " bytes without one: it is truncated"));
  file += absl::StrCat(std::string(12, ' '), "\xff\xd9");
  EXPECT_EQ(ErrorOf(file), absl::OkStatus());
}

TEST(ImageDecoder, AMarkerThatHasNoPlaceInDataIsDamageWhicheverPartIsWanted) {
  std::string file = Jpeg();
  const size_t at = file.size() - 100;
  file.replace(at, 2, "\xff\x3c");
  ImageDecoder decoder;
  const absl::Status status = decoder.Open(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            absl::StrCat("expected JPEG data, found the marker ff3c at byte ", at, ": it is damaged"));
}

TEST(ImageDecoder, DataThatLibjpegCanPassOverIsNoError) {
  std::string file = Jpeg();
  file.replace(file.size() * 3 / 4, 16, 16, '\0');
  EXPECT_EQ(ErrorOf(file), absl::OkStatus());
}

std::string WithoutSegment(std::string file, absl::string_view marker) {
  const size_t begin = file.find(marker.data(), 0, marker.size());
  const size_t length = 2 + 256 * static_cast<uint8_t>(file[begin + 2]) + static_cast<uint8_t>(file[begin + 3]);
  return file.erase(begin, length);
}

TEST(ImageDecoder, AFileWithoutTablesDoesNotGetThoseOfTheLastOne) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  Pixels(decoder, file, {0, 0, 1, 1});
  ASSERT_TRUE(decoder.Open(WithoutSegment(file, "\xff\xdb")).ok());
  const absl::Status status = decoder.Decode({0, 0, 1, 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "libjpeg: Quantization table 0x00 was not defined");
  EXPECT_EQ(Pixels(decoder, file, {0, 0, 1, 1}).size(), 3);
}

TEST(ImageDecoder, MoreScansThanAnEncoderWritesAreRefused) {
  JpegOptions options;
  options.progressive = true;
  std::string file = Jpeg(options);
  const size_t last_scan = file.rfind("\xff\xda");
  const std::string scan = file.substr(last_scan, file.size() - 2 - last_scan);
  for (int i = 0; i < 100; ++i) file.insert(last_scan, scan);
  const absl::Status status = ErrorOf(file);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "expected at most 100 scans of a JPEG file, found more");
}

TEST(ImageDecoder, AnImageOfMorePixelsThanAllowedIsRefusedByItsHeader) {
  const absl::Status status = ErrorOf(testing::WithSize(Jpeg(), {65500, 65500}));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "expected an image of at most 178956970 pixels (max_pixels), found one of 65500x65500");
  ImageDecoderOptions options;
  options.max_pixels = 37 * 53;
  EXPECT_EQ(ErrorOf(Jpeg(), options), absl::OkStatus());
  --options.max_pixels;
  EXPECT_EQ(ErrorOf(Jpeg(), options).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ImageDecoder, WhatIsNoImageIsNamedByItsFirstBytes) {
  EXPECT_EQ(ErrorOf("").message(), "expected an image, found an empty file");
  const absl::Status status = ErrorOf("(html)(body)");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "expected JPEG, PNG, BMP, PNM, TIFF or WebP, found a file that begins with the bytes 2868746d6c292862");
}

ShrunkImage ShrinkOf(const std::string& file, int64_t denominator) {
  ImageDecoder decoder;
  EXPECT_EQ(decoder.Open(file).status(), absl::OkStatus());
  return decoder.Shrink(denominator).value();
}

TEST(ImageDecoder, ShrinksByThePowerOfTwoUpToEightThatIsAtMostWhatIsAskedFor) {
  const std::map<int64_t, int64_t> denominators = {
      {1, 1}, {2, 2}, {3, 2}, {4, 4}, {7, 4}, {8, 8}, {int64_t{1} << 40, 8}};
  for (const auto& [asked, found] : denominators) {
    const ShrunkImage image = ShrinkOf(Jpeg(), asked);
    EXPECT_EQ(image.denominator, found);
    EXPECT_EQ(image.size.height, (37 + found - 1) / found);
    EXPECT_EQ(image.size.width, (53 + found - 1) / found);
  }
}

TEST(ImageDecoder, TheLastOfSeveralShrinksCounts) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  ASSERT_TRUE(decoder.Open(file).ok());
  ASSERT_TRUE(decoder.Shrink(8).ok());
  ASSERT_EQ(decoder.Shrink(2)->size.width, 27);
  EXPECT_EQ(decoder.Decode({18, 26, 1, 1}).status(), absl::OkStatus());
  ASSERT_TRUE(decoder.Open(file).ok());
  EXPECT_EQ(decoder.Decode({36, 52, 1, 1}).status(), absl::OkStatus());
}

TEST(ImageDecoder, AShrunkImageEndsWhereItsSizeSays) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  ASSERT_TRUE(decoder.Open(file).ok());
  ASSERT_TRUE(decoder.Shrink(4).ok());
  EXPECT_EQ(decoder.Decode({9, 13, 1, 2}).status(),
            absl::InvalidArgumentError("expected a part of an image of 14x10, found 2x1 at (13, 9)"));
}

TEST(ImageDecoder, ShrinkTakesAnOpenImageAndAPositiveDenominator) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  const absl::Status nothing_open =
      absl::FailedPreconditionError("expected Open() to have succeeded since the last Decode()");
  EXPECT_EQ(decoder.Shrink(2).status(), nothing_open);
  ASSERT_TRUE(decoder.Open(file).ok());
  EXPECT_EQ(decoder.Shrink(0).status(), absl::InvalidArgumentError("expected a denominator of at least 1, found 0"));
  ASSERT_TRUE(decoder.Decode({0, 0, 37, 53}).ok());
  EXPECT_EQ(decoder.Shrink(2).status(), nothing_open);
}

TEST(ImageDecoder, APartThatIsNotInTheImageIsRefused) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  for (const Rectangle& part : {Rectangle{-1, 0, 2, 2},
                                {0, -1, 2, 2},
                                {0, 0, 0, 1},
                                {0, 0, 1, 0},
                                {36, 0, 2, 1},
                                {0, 52, 1, 2},
                                {int64_t{1} << 62, 0, int64_t{1} << 62, 1}}) {
    ASSERT_TRUE(decoder.Open(file).ok());
    EXPECT_EQ(decoder.Decode(part).status().code(), absl::StatusCode::kInvalidArgument);
  }
  ASSERT_TRUE(decoder.Open(file).ok());
  EXPECT_EQ(decoder.Decode({30, 50, 7, 4}).status().message(),
            "expected a part of an image of 53x37, found 4x7 at (50, 30)");
}

TEST(ImageDecoder, EachDecodeTakesAnOpenThatSucceeded) {
  const std::string file = Jpeg();
  ImageDecoder decoder;
  const absl::Status never = decoder.Decode({0, 0, 1, 1}).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(never.message(), "expected Open() to have succeeded since the last Decode()");
  Pixels(decoder, file, {0, 0, 1, 1});
  EXPECT_EQ(decoder.Decode({0, 0, 1, 1}).status(), never);
  ASSERT_TRUE(decoder.Open(file).ok());
  ASSERT_FALSE(decoder.Open("").ok());
  EXPECT_EQ(decoder.Decode({0, 0, 1, 1}).status(), never);
}

}  // namespace
}  // namespace lockstep::data
