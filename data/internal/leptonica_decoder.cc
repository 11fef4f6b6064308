#include "lockstep/data/internal/leptonica_decoder.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/internal/leptonica.h"

namespace lockstep::data::internal {
namespace {

// findFileFormatBuffer() does not take the number of bytes.
constexpr size_t kLongestMagic = 12;

const uint8_t* Data(absl::string_view bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

struct Header {
  int format = IFF_UNKNOWN;
  int width = 0;
  int height = 0;
  int bits = 0;     // of a sample
  int samples = 0;  // of a pixel
  int has_palette = 0;
};

const char* FormatName(int format) {
  if (format == IFF_BMP) return "BMP";
  return format == IFF_WEBP ? "WebP" : nullptr;
}

int FormatOf(absl::string_view bytes) {
  int format = IFF_UNKNOWN;
  if (bytes.size() >= kLongestMagic) findFileFormatBuffer(Data(bytes), &format);
  return format;
}

// The bits of a whole pixel of a BMP file. Leptonica's header does not distinguish 32 from 24.
int BitsOfBmp(absl::string_view bytes) { return bytes.size() < 30 ? 0 : Data(bytes)[28] | Data(bytes)[29] << 8; }

// The kinds whose pixels were equal in a comparison with Pillow. In BMP, Leptonica treats alpha as a colour.
bool IsAsPillows(const Header& header) {
  switch (header.format) {
    case IFF_WEBP:
      return true;
    case IFF_BMP:
      return header.bits == 1 || header.bits == 8 || header.bits == 24;
  }
  return false;
}

absl::Status Unsupported(const Header& header) {
  return absl::InvalidArgumentError(absl::StrCat(
      "expected ", FormatName(header.format), " of a kind that is read as Pillow reads it, found one of ",
      header.samples, " samples a pixel of ", header.bits, " bits", header.has_palette ? " with a palette" : ""));
}

absl::Status Damaged(int format) {
  return absl::DataLossError(
      absl::StrCat("Leptonica: the ", FormatName(format), " data is damaged, truncated or of an unknown kind"));
}

// Whether a WebP file's first chunk says so.
bool IsAnimation(absl::string_view bytes) {
  constexpr size_t kFlags = 20;
  constexpr uint8_t kAnimation = 2;
  return bytes.size() > kFlags && bytes.substr(12, 4) == "VP8X" && (Data(bytes)[kFlags] & kAnimation) != 0;
}

absl::StatusOr<Header> ReadHeader(absl::string_view bytes) {
  Header header;
  if (pixReadHeaderMem(Data(bytes), bytes.size(), &header.format, &header.width, &header.height, &header.bits,
                       &header.samples, &header.has_palette) != 0 ||
      header.width <= 0 || header.height <= 0) {
    return Damaged(FormatOf(bytes));
  }
  if (header.format == IFF_BMP) {
    header.samples = 1;
    header.bits = BitsOfBmp(bytes);
  }
  return header;
}

}  // namespace

bool LeptonicaDecoder::Recognises(absl::string_view bytes) { return FormatName(FormatOf(bytes)) != nullptr; }

absl::StatusOr<ImageSize> LeptonicaDecoder::Open(absl::string_view bytes) {
  SilenceLeptonica();
  bytes_ = bytes;
  if (FormatOf(bytes) == IFF_WEBP && IsAnimation(bytes)) {
    return absl::InvalidArgumentError("expected WebP of a kind that is read as Pillow reads it, found an animation");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Header header, ReadHeader(bytes));
  if (!IsAsPillows(header)) return Unsupported(header);
  size_ = {header.height, header.width};
  return size_;
}

absl::StatusOr<ImageView> LeptonicaDecoder::Decode() {
  PixPointer image = ReadPix(bytes_);
  if (!image || pixGetHeight(image.get()) != size_.height || pixGetWidth(image.get()) != size_.width) {
    return Damaged(FormatOf(bytes_));
  }
  image = ToRgb(std::move(image));
  if (!image) return absl::ResourceExhaustedError("Leptonica: no memory to convert an image to RGB");
  uint8_t* const pixels = buffer_.Reserve(3 * size_.height * size_.width);
  for (int64_t y = 0; y < size_.height; ++y) CopyRgbRow(image.get(), y, pixels + 3 * size_.width * y);
  return ImageView{pixels, 3 * size_.width, {0, 0, size_.height, size_.width}};
}

}  // namespace lockstep::data::internal
