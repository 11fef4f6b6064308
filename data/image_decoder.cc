#include "lockstep/data/image_decoder.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/bmp_decoder.h"
#include "lockstep/data/internal/foreign_kind.h"
#include "lockstep/data/internal/jpeg_decoder.h"
#include "lockstep/data/internal/png_decoder.h"
#include "lockstep/data/internal/pnm_decoder.h"
#include "lockstep/data/internal/tiff_decoder.h"
#include "lockstep/data/internal/webp_decoder.h"

namespace lockstep::data {
namespace {

using internal::BmpDecoder;
using internal::JpegDecoder;
using internal::PngDecoder;
using internal::PnmDecoder;
using internal::TiffDecoder;
using internal::WebpDecoder;

constexpr int64_t kBytesShown = 8;
constexpr int64_t kJpegDenominators[] = {8, 4, 2, 1};

absl::Status UnknownFormat(absl::string_view bytes) {
  if (bytes.empty()) return absl::InvalidArgumentError("expected an image, found an empty file");
  constexpr absl::string_view kExpected = "expected JPEG, PNG, BMP, PNM, TIFF or WebP, found ";
  const absl::string_view kind = internal::ForeignKind(bytes);
  if (!kind.empty()) return absl::InvalidArgumentError(absl::StrCat(kExpected, kind));
  return absl::InvalidArgumentError(absl::StrCat(kExpected, "a file that begins with the bytes ",
                                                 absl::BytesToHexString(bytes.substr(0, kBytesShown))));
}

absl::Status CheckSize(const ImageSize& size, int64_t max_pixels) {
  // Both are less than 2^31, so the product does not overflow.
  if (size.height * size.width <= max_pixels) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("expected an image of at most ", max_pixels,
                                                   " pixels (max_pixels), found one of ", size.width, "x",
                                                   size.height));
}

absl::Status NothingOpen() {
  return absl::FailedPreconditionError("expected Open() to have succeeded since the last Decode()");
}

int64_t JpegDenominator(int64_t at_most) {
  return *std::find_if(std::begin(kJpegDenominators), std::end(kJpegDenominators),
                       [&](int64_t denominator) { return denominator <= at_most; });
}

bool Contains(const ImageSize& size, const Rectangle& part) {
  return part.top >= 0 && part.left >= 0 && part.height > 0 && part.width > 0 &&
         part.top <= size.height - part.height && part.left <= size.width - part.width;
}

absl::Status CheckPart(const ImageSize& size, const Rectangle& part) {
  if (Contains(size, part)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected a part of an image of ", size.width, "x", size.height,
                                                 ", found ", part.width, "x", part.height, " at (", part.left, ", ",
                                                 part.top, ")"));
}

}  // namespace

struct ImageDecoder::Decoders {
  JpegDecoder jpeg;
  PngDecoder png;
  PnmDecoder pnm;
  TiffDecoder tiff;
  BmpDecoder bmp;
  WebpDecoder webp;
  ImageSize size;  // of the open image, as it will be decoded; 0 by 0: no image is open
  std::function<absl::StatusOr<ImageView>(const Rectangle&)> decode;
  std::function<absl::StatusOr<ShrunkImage>(int64_t)> shrink;
  std::function<absl::Status()> check;  // what takes time in proportion to the size

  absl::StatusOr<ImageSize> Open(absl::string_view bytes);
  absl::StatusOr<ShrunkImage> ShrinkJpeg(int64_t denominator);
};

absl::StatusOr<ImageSize> ImageDecoder::Decoders::Open(absl::string_view bytes) {
  shrink = [this](int64_t) { return ShrunkImage{1, size}; };
  check = [] { return absl::OkStatus(); };
  if (JpegDecoder::Recognises(bytes)) {
    check = [this] { return jpeg.CheckEnd(); };
    shrink = [this](int64_t denominator) { return ShrinkJpeg(denominator); };
    decode = [this](const Rectangle& wanted) { return jpeg.Decode(wanted); };
    return jpeg.Open(bytes);
  }
  if (PngDecoder::Recognises(bytes)) {
    decode = [this](const Rectangle&) { return png.Decode(); };
    return png.Open(bytes);
  }
  if (PnmDecoder::Recognises(bytes)) {
    decode = [this](const Rectangle&) { return pnm.Decode(); };
    return pnm.Open(bytes);
  }
  if (TiffDecoder::Recognises(bytes)) {
    decode = [this](const Rectangle&) { return tiff.Decode(); };
    return tiff.Open(bytes);
  }
  if (BmpDecoder::Recognises(bytes)) {
    decode = [this](const Rectangle&) { return bmp.Decode(); };
    return bmp.Open(bytes);
  }
  if (WebpDecoder::Recognises(bytes)) {
    decode = [this](const Rectangle&) { return webp.Decode(); };
    return webp.Open(bytes);
  }
  return UnknownFormat(bytes);
}

absl::StatusOr<ShrunkImage> ImageDecoder::Decoders::ShrinkJpeg(int64_t denominator) {
  ShrunkImage image;
  image.denominator = JpegDenominator(denominator);
  LOCKSTEP_ASSIGN_OR_RETURN(image.size, jpeg.Shrink(image.denominator));
  size = image.size;
  return image;
}

ImageDecoder::ImageDecoder(const ImageDecoderOptions& options)
    : options_(options), decoders_(std::make_unique<Decoders>()) {}
ImageDecoder::~ImageDecoder() = default;
ImageDecoder::ImageDecoder(ImageDecoder&&) noexcept = default;
ImageDecoder& ImageDecoder::operator=(ImageDecoder&&) noexcept = default;

absl::StatusOr<ImageSize> ImageDecoder::Open(absl::string_view bytes) {
  decoders_->size = {};
  LOCKSTEP_ASSIGN_OR_RETURN(const ImageSize size, decoders_->Open(bytes));
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(size, options_.max_pixels));
  LOCKSTEP_RETURN_IF_ERROR(decoders_->check());
  return decoders_->size = size;
}

absl::StatusOr<ShrunkImage> ImageDecoder::Shrink(int64_t denominator) {
  if (decoders_->size.height == 0) return NothingOpen();
  if (denominator < 1)
    return absl::InvalidArgumentError(absl::StrCat("expected a denominator of at least 1, found ", denominator));
  return decoders_->shrink(denominator);
}

absl::StatusOr<ImageView> ImageDecoder::Decode(const Rectangle& wanted) {
  const ImageSize size = std::exchange(decoders_->size, ImageSize{});
  if (size.height == 0) return NothingOpen();
  LOCKSTEP_RETURN_IF_ERROR(CheckPart(size, wanted));
  return decoders_->decode(wanted);
}

}  // namespace lockstep::data
