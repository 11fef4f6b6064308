// Formats besides JPEG.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/data/testing/decoded.h"
#include "lockstep/data/testing/png_files.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Pixels;
using testing::Png;
using testing::PngOptions;

std::string Bytes(const std::vector<int>& values) { return std::string(values.begin(), values.end()); }

std::vector<uint8_t> PngPixels(const PngOptions& options, const std::vector<int>& rows) {
  ImageDecoder decoder;
  return Pixels(decoder, Png(options, Bytes(rows)), testing::Whole(options.size));
}

TEST(ImageFormats, WhatIsNoJpegIsNotShrunk) {
  const std::string file = Png({{2, 1}}, Bytes({0, 1, 2, 3, 0, 4, 5, 6}));
  ImageDecoder decoder;
  ASSERT_TRUE(decoder.Open(file).ok());
  const ShrunkImage image = decoder.Shrink(8).value();
  EXPECT_EQ(image.denominator, 1);
  EXPECT_EQ(image.size.height, 2);
  EXPECT_EQ(image.size.width, 1);
  EXPECT_THAT(Pixels(decoder, file, testing::Whole(image.size), 8), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ImageFormats, PngOfRgbKeepsItsColours) {
  EXPECT_THAT(PngPixels({{2, 1}}, {0, 1, 2, 3, 0, 4, 5, 6}), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(ImageFormats, PngsAlphaIsDroppedAndNotBlended) {
  EXPECT_THAT(PngPixels({{1, 2}, 8, 6}, {0, 1, 2, 3, 0, 4, 5, 6, 128}), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(PngPixels({{1, 2}, 8, 4}, {0, 7, 0, 8, 255}), ElementsAre(7, 7, 7, 8, 8, 8));
}

TEST(ImageFormats, PngsGreyOfFewBitsReachesWhite) {
  EXPECT_THAT(PngPixels({{1, 2}, 1, 0}, {0, 0x40}), ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(PngPixels({{1, 2}, 2, 0}, {0, 0x70}), ElementsAre(85, 85, 85, 255, 255, 255));
  EXPECT_THAT(PngPixels({{1, 2}, 4, 0}, {0, 0x1f}), ElementsAre(17, 17, 17, 255, 255, 255));
}

TEST(ImageFormats, PngsPaletteIsLookedUpAndBlackBeyondItsEnd) {
  PngOptions options = {{1, 3}, 8, 3};
  options.palette = Bytes({10, 20, 30, 40, 50, 60});
  EXPECT_THAT(PngPixels(options, {0, 1, 0, 2}), ElementsAre(40, 50, 60, 10, 20, 30, 0, 0, 0));
}

TEST(ImageFormats, PngsColoursOf16BitsLoseTheirLowerEight) {
  EXPECT_THAT(PngPixels({{1, 1}, 16, 2}, {0, 1, 255, 3, 4, 254, 128}), ElementsAre(1, 3, 254));
}

TEST(ImageFormats, PngsGreyOf16BitsIsCutOffAbove255AsInPillow) {
  EXPECT_THAT(PngPixels({{1, 3}, 16, 0}, {0, 0, 4, 0, 255, 1, 0}), ElementsAre(4, 4, 4, 255, 255, 255, 255, 255, 255));
}

TEST(ImageFormats, PngMayBeInterlaced) {
  PngOptions options = {{2, 2}, 8, 0, true};
  EXPECT_THAT(PngPixels(options, {0, 1, 0, 2, 0, 3, 4}), ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4));
}

TEST(ImageFormats, APngFileCutAnywhereInItsDataIsTruncated) {
  const std::string file = Png({{2, 1}}, Bytes({0, 1, 2, 3, 0, 4, 5, 6}));
  const size_t end_chunk = 12;
  for (size_t size = 8; size < file.size() - end_chunk; ++size) {
    const absl::Status status = ErrorOf(file.substr(0, size));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_EQ(status.message(), "libpng: expected more data, found the end of the file: it is truncated") << size;
  }
}

TEST(ImageFormats, ADamagedPngFileIsAnError) {
  std::string file = Png({{2, 1}}, Bytes({0, 1, 2, 3, 0, 4, 5, 6}));
  file[20] ^= 1;
  EXPECT_EQ(ErrorOf(file).message(), "libpng: IHDR: CRC error");
}

TEST(ImageFormats, AWrongChecksumOfAnOptionalPngChunkIsAnErrorToo) {
  const std::string file = Png({{2, 1}}, Bytes({0, 1, 2, 3, 0, 4, 5, 6}));
  const size_t behind_the_header = 8 + 25;
  for (const std::string name : {"teSt", "tEXt"}) {
    std::string changed = file;
    changed.insert(behind_the_header, Bytes({0, 0, 0, 1}) + name + "x1234");
    EXPECT_EQ(ErrorOf(changed).message(), "libpng: " + name + ": CRC error");
  }
}

TEST(ImageFormats, APngFileOfTooManyPixelsIsRefusedByItsHeader) {
  const absl::Status status = ErrorOf(Png({{65500, 65500}}, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("found one of 65500x65500"));
}

TEST(ImageFormats, PnmOfBitsGreyAndRgbIsRead) {
  ImageDecoder decoder;
  EXPECT_THAT(Pixels(decoder, "P6\n2 1\n255\n" + Bytes({1, 2, 3, 4, 5, 6}), {0, 0, 1, 2}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Pixels(decoder, "P5\n2 1\n255\n" + Bytes({1, 2}), {0, 0, 1, 2}), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(Pixels(decoder, "P4\n2    1\n" + Bytes({0x40, 0, 0}), {0, 0, 1, 2}), ElementsAre(255, 255, 255, 0, 0, 0));
}

std::vector<uint8_t> PnmPixels(const std::string& file) {
  ImageDecoder decoder;
  return Pixels(decoder, file, {0, 0, 1, 2});
}

TEST(ImageFormats, PnmOfOtherScalesIsScaledAsInPillow) {
  EXPECT_THAT(PnmPixels("P5\n2 1\n100\n" + Bytes({1, 100})), ElementsAre(3, 3, 3, 255, 255, 255));
  EXPECT_THAT(PnmPixels("P5\n2 1\n65535\n" + Bytes({0, 1, 1, 2})), ElementsAre(1, 1, 1, 255, 255, 255));
  EXPECT_THAT(PnmPixels("P5\n2 1\n1000\n" + Bytes({0, 1, 1, 2})), ElementsAre(66, 66, 66, 255, 255, 255));
  EXPECT_THAT(PnmPixels("P6\n2 1\n65535\n" + Bytes({0, 1, 1, 2, 128, 0, 255, 255, 0, 128, 0, 129})),
              ElementsAre(0, 1, 128, 255, 0, 1));
  EXPECT_THAT(PnmPixels("P3 2 1 15  1 2 3\n15 14 0\n"), ElementsAre(17, 34, 51, 255, 238, 0));
}

TEST(ImageFormats, PnmMayHaveComments) {
  EXPECT_THAT(PnmPixels("P5\n# GIMP\n2 # wide\n1\n#\n255\n" + Bytes({1, 2})), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(PnmPixels("P2\n2 1\n255\n7 # seven\n8"), ElementsAre(7, 7, 7, 8, 8, 8));
  EXPECT_THAT(PnmPixels("P1\n#\n2 1\n1#\n0"), ElementsAre(0, 0, 0, 255, 255, 255));
}

TEST(ImageFormats, BitsAsTextNeedNoSpaces) {
  EXPECT_THAT(PnmPixels("P1\n2 1\n10\n"), ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(PnmPixels("P1\n2 1\n1 0\n"), ElementsAre(0, 0, 0, 255, 255, 255));
}

TEST(ImageFormats, ADamagedPnmFileIsAnError) {
  EXPECT_EQ(ErrorOf("P6\n20 1\n255\n" + Bytes({1, 2, 3})).message(),
            "expected more PNM data, found the end of the file: it is truncated");
  EXPECT_EQ(ErrorOf("P5\n20 # no end").message(), "expected more PNM data, found the end of the file: it is truncated");
  EXPECT_EQ(ErrorOf("P5\n2 0\n255\n" + Bytes({1, 2})).message(),
            "expected the height of a PNM file from 1 to 2147483647, found \"0\": it is damaged");
  EXPECT_EQ(ErrorOf("P5\n2 1\n65536\n" + Bytes({0, 1, 0, 2})).message(),
            "expected the largest sample of a PNM file from 1 to 65535, found \"65536\": it is damaged");
  EXPECT_EQ(ErrorOf("P2\n2 1\n15\n1 16\n").message(),
            "expected a sample of a PNM file from 0 to 15, found \"16\": it is damaged");
  EXPECT_EQ(ErrorOf("P1\n2 1\n02\n").message(),
            "expected a sample of a PNM file from 0 to 1, found \"2\": it is damaged");
  EXPECT_EQ(ErrorOf("P5 99999 99999 255 1").code(), absl::StatusCode::kResourceExhausted);
}

// A BMP file of 1 by 2 pixels.
std::string Bmp(int bits, int compression, const std::vector<int>& tables, const std::vector<int>& row) {
  std::string file(54, '\0');
  file.replace(0, 2, "BM");
  const int pixels = static_cast<int>(file.size() + tables.size());
  for (const auto& [offset, value] :
       {std::pair(10, pixels), {14, 40}, {18, 2}, {22, 1}, {26, 1}, {28, bits}, {30, compression}, {46, 2}}) {
    file[offset] = static_cast<char>(value);
  }
  return file + Bytes(tables) + Bytes(row);
}

TEST(ImageFormats, BmpOfEveryDepthIsRead) {
  ImageDecoder decoder;
  const auto pixels = [&](const std::string& file) { return Pixels(decoder, file, {0, 0, 1, 2}); };
  const std::vector<int> palette = {1, 2, 3, 0, 4, 5, 6, 0};
  EXPECT_THAT(pixels(Bmp(1, 0, palette, {0x40, 0, 0, 0})), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(pixels(Bmp(4, 0, palette, {0x10, 0, 0, 0})), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(pixels(Bmp(8, 0, palette, {1, 2, 0, 0})), ElementsAre(6, 5, 4, 0, 0, 0));
  EXPECT_THAT(pixels(Bmp(16, 0, {}, {0x1f, 0x7c, 0xe0, 3})), ElementsAre(255, 0, 255, 0, 255, 0));
  EXPECT_THAT(pixels(Bmp(24, 0, {}, {1, 2, 3, 4, 5, 6})), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(pixels(Bmp(32, 0, {}, {1, 2, 3, 99, 4, 5, 6, 99})), ElementsAre(3, 2, 1, 6, 5, 4));
}

TEST(ImageFormats, BmpMayHaveMasks) {
  ImageDecoder decoder;
  const auto pixels = [&](const std::string& file) { return Pixels(decoder, file, {0, 0, 1, 2}); };
  EXPECT_THAT(pixels(Bmp(16, 3, {0, 0xf8, 0, 0, 0xe0, 7, 0, 0, 0x1f, 0, 0, 0}, {0x1f, 0xf8, 0xe0, 7})),
              ElementsAre(255, 0, 255, 0, 255, 0));
  EXPECT_THAT(pixels(Bmp(32, 3, {0, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0}, {0, 1, 2, 3, 0, 4, 5, 6})),
              ElementsAre(3, 2, 1, 6, 5, 4));
}

TEST(ImageFormats, BmpWithRunLengthsIsNotCalledDamaged) {
  EXPECT_EQ(ErrorOf(Bmp(8, 1, {}, {2, 0, 0, 1})),
            absl::InvalidArgumentError("expected BMP of a kind that is read as Pillow reads it, found one of 8 bits a "
                                       "pixel with compression 1 and a header of 40 bytes"));
}

TEST(ImageFormats, ABmpFileCutAnywhereIsTruncated) {
  const std::string file = Bmp(4, 0, {1, 2, 3, 0, 4, 5, 6, 0}, {0x10});
  for (size_t size = 2; size < file.size(); ++size) {
    const absl::Status status = ErrorOf(file.substr(0, size));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_THAT(status.message(), HasSubstr("it is truncated")) << size;
  }
}

TEST(ImageFormats, AFileOfAnotherKindIsCalledByIt) {
  const std::pair<std::string, std::string> files[] = {
      {"GIF89a" + Bytes({4, 0, 4, 0}), "a GIF image"},
      {Bytes({0, 0, 0, 32}) + "ftypavif", "an AVIF image"},
      {Bytes({0, 0, 0, 24}) + "ftypheic", "a HEIC image"},
      {Bytes({0, 0, 0, 24}) + "ftypisom", "an MP4 or QuickTime file"},
      {Bytes({0, 0, 0, 12}) + "jP  \r\n", "a JPEG 2000 image"},
      {Bytes({0, 5, 22, 7, 0, 2, 0, 0}), "an AppleDouble file, which macOS puts beside others as \"._NAME\""},
      {"<!DOCTYPE HTML><html>", "an HTML page"},
  };
  for (const auto& [file, kind] : files) {
    EXPECT_EQ(ErrorOf(file), absl::InvalidArgumentError("expected JPEG, PNG, BMP, PNM, TIFF or WebP, found " + kind));
  }
}

TEST(ImageFormats, AnAnimationInWebpIsNotCalledDamaged) {
  const std::string file = "RIFF" + Bytes({100, 0, 0, 0}) + "WEBPVP8X" + Bytes({10, 0, 0, 0, 2, 0, 0, 0}) +
                           Bytes({3, 0, 0, 3, 0, 0}) + "ANIM" + std::string(80, '\0');
  EXPECT_EQ(ErrorOf(file),
            absl::InvalidArgumentError("expected WebP of a kind that is read as Pillow reads it, found an animation"));
}

}  // namespace
}  // namespace lockstep::data
