// TIFF files. The expected pixels are Pillow's, which peer/ compares for many more kinds.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/data/image_decoder.h"
#include "lockstep/data/testing/decoded.h"
#include "lockstep/data/testing/png_files.h"
#include "lockstep/data/testing/tiff_files.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tiff;
using testing::TiffEntries;
using testing::TiffOf;

std::string Bytes(const std::vector<int>& values) { return std::string(values.begin(), values.end()); }

std::vector<uint8_t> PixelsOf(const std::string& file) {
  ImageDecoder decoder;
  const absl::StatusOr<ImageSize> size = decoder.Open(file);
  EXPECT_EQ(size.status(), absl::OkStatus());
  return size.ok() ? testing::Pixels(decoder, file, testing::Whole(*size)) : std::vector<uint8_t>();
}

std::vector<uint8_t> PixelsOf(const TiffEntries& entries, const std::vector<int>& bytes) {
  return PixelsOf(Tiff(entries, {Bytes(bytes)}));
}

TEST(Tiff, UncompressedYcbcrHasTheRoundingOfPillow) {
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 6, 8, 3, {{530, {1, 1}}}), {100, 50, 200, 60, 90, 30}),
              ElementsAre(200, 75, 0, 0, 143, 0));
  EXPECT_THAT(PixelsOf(TiffOf(1, 1, 6, 8, 3, {{530, {1, 1}}}), {120, 100, 131}), ElementsAre(124, 127, 70));
}

TEST(Tiff, OrientationTurnsTheImage) {
  const std::vector<std::vector<int>> expected = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1},
                                                  {4, 5, 6, 1, 2, 3}, {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3},
                                                  {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
  for (uint16_t orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = Tiff(TiffOf(2, 3, 1, 8, 1, {{274, {orientation}}}), {Bytes({1, 2, 3, 4, 5, 6})});
    ImageDecoder decoder;
    const ImageSize size = decoder.Open(file).value();
    EXPECT_EQ(size.height, orientation < 5 ? 2 : 3);
    EXPECT_EQ(size.width, orientation < 5 ? 3 : 2);
    std::vector<int> grey;
    const std::vector<uint8_t> pixels = testing::Pixels(decoder, file, testing::Whole(size));
    for (size_t i = 0; i < pixels.size(); i += 3) grey.push_back(pixels[i]);
    EXPECT_EQ(grey, expected[orientation - 1]) << orientation;
  }
}

TEST(Tiff, TilesAreJoinedAndCutAtTheEdges) {
  const TiffEntries entries = TiffOf(1, 17, 1, 8, 1, {{322, {16}}, {323, {16}}});
  const std::vector<uint8_t> pixels = PixelsOf(Tiff(entries, {std::string(256, 'a'), std::string(256, 'b')}));
  EXPECT_EQ(pixels, std::vector<uint8_t>([] {
              std::vector<uint8_t> expected(48, 'a');
              expected.insert(expected.end(), 3, 'b');
              return expected;
            }()));
}

TEST(Tiff, PlanesAreInterleaved) {
  EXPECT_THAT(PixelsOf(Tiff(TiffOf(1, 2, 2, 8, 3, {{284, {2}}}), {Bytes({1, 2}), Bytes({3, 4}), Bytes({5, 6})})),
              ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(Tiff, PalettesAndInkBecomeRgb) {
  const TiffEntries palette = {{320, {256, 512, 768, 1024, 1280, 1536}}};
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 3, 1, 1, palette), {0x80}), ElementsAre(2, 4, 6, 1, 3, 5));
  EXPECT_THAT(PixelsOf(TiffOf(1, 1, 5, 8, 4), {10, 200, 30, 40}), ElementsAre(207, 46, 190));
}

TEST(Tiff, AlphaIsDroppedAndTakenOutOfColoursThatHaveIt) {
  EXPECT_THAT(PixelsOf(TiffOf(1, 1, 2, 8, 4, {{338, {2}}}), {10, 200, 30, 40}), ElementsAre(10, 200, 30));
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 2, 8, 4, {{338, {1}}}), {10, 20, 30, 40, 9, 9, 9, 0}),
              ElementsAre(63, 127, 191, 0, 0, 0));
}

TEST(Tiff, SamplesOfOtherBitsBecomeBytesAsInPillow) {
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 0, 4, 1), {0x1f}), ElementsAre(238, 238, 238, 0, 0, 0));
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 0, 1, 1), {0x40}), ElementsAre(255, 255, 255, 0, 0, 0));
  EXPECT_THAT(PixelsOf(TiffOf(1, 2, 1, 16, 1), {7, 0, 0, 1}), ElementsAre(7, 7, 7, 255, 255, 255));
  EXPECT_THAT(PixelsOf(TiffOf(1, 1, 2, 16, 3), {1, 2, 3, 4, 5, 6}), ElementsAre(2, 4, 6));
}

TEST(Tiff, DifferencesAreSummedUp) {
  TiffEntries entries = TiffOf(1, 2, 2, 8, 3, {{259, {8}}, {317, {2}}});
  EXPECT_THAT(PixelsOf(Tiff(entries, {testing::Deflated(Bytes({1, 2, 3, 4, 5, 6}))})), ElementsAre(1, 2, 3, 5, 7, 9));
  entries[258] = {16, 16, 16};
  EXPECT_THAT(PixelsOf(Tiff(entries, {testing::Deflated(Bytes({200, 1, 200, 2, 200, 3, 100, 1, 100, 2, 100, 3}))})),
              ElementsAre(1, 2, 3, 3, 5, 7));
}

TEST(Tiff, ASoundFileOfAnotherKindIsNotCalledDamaged) {
  const absl::Status status = ErrorOf(Tiff(TiffOf(1, 1, 1, 32, 1, {{339, {3}}}), {std::string(4, 'a')}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "expected TIFF of a kind that is read as Pillow reads it, found one of 1 samples a pixel of 32 bits with "
            "photometric interpretation 1 and compression 1, whose samples are not unsigned whole numbers");
  EXPECT_EQ(ErrorOf(Tiff(TiffOf(1, 1, 1, 8, 1, {{259, {50001}}}), {"abc"})).message(),
            "expected TIFF of a kind that is read as Pillow reads it, found one of 1 samples a pixel of 8 bits with "
            "photometric interpretation 1 and compression 50001");
}

TEST(Tiff, AFileCutAnywhereIsTruncated) {
  const std::string file = Tiff(TiffOf(2, 3, 2, 8, 3), {std::string(18, 'a')});
  for (size_t size = 4; size + 4 < file.size(); ++size) {
    const absl::Status status = ErrorOf(file.substr(0, size));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_THAT(status.message(), HasSubstr("it is truncated")) << size;
  }
}

TEST(Tiff, AStripBeyondTheEndAndAMissingStripAreDamage) {
  EXPECT_EQ(ErrorOf(Tiff(TiffOf(9, 30, 2, 8, 3), {"abc"})).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorOf(Tiff(TiffOf(2, 1, 1, 8, 1, {{278, {1}}}), {"a"})).message(),
            "expected 2 strips or tiles in a TIFF file, found 1: it is damaged or truncated");
  EXPECT_EQ(ErrorOf(Tiff(TiffOf(2, 1, 3, 8, 1, {{320, {1, 2, 3}}}), {"ab"})).message(),
            "expected a palette of 768 numbers in a TIFF file, found 3: it is damaged");
}

TEST(Tiff, TilesMuchLargerThanTheImageAreRefused) {
  const absl::Status status = ErrorOf(Tiff(TiffOf(1, 1, 1, 8, 1, {{322, {65520}}, {323, {65520}}}), {"a"}));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "expected a TIFF image of 1x1 to have tiles not much larger, found 65520x65520");
}

}  // namespace
}  // namespace lockstep::data
