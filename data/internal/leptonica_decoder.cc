#include "lockstep/data/internal/leptonica_decoder.h"

#include <leptonica/allheaders.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

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
  if (format == IFF_PNM) return "PNM";
  if (format == IFF_WEBP) return "WebP";
  return L_FORMAT_IS_TIFF(format) ? "TIFF" : nullptr;
}

int FormatOf(absl::string_view bytes) {
  int format = IFF_UNKNOWN;
  if (bytes.size() >= kLongestMagic) findFileFormatBuffer(Data(bytes), &format);
  return format;
}

// The bits of a whole pixel of a BMP file. Leptonica's header does not distinguish 32 from 24.
int BitsOfBmp(absl::string_view bytes) { return bytes.size() < 30 ? 0 : Data(bytes)[28] | Data(bytes)[29] << 8; }

// The kinds whose pixels were equal in a comparison with Pillow. In TIFF, Leptonica blends alpha and accepts truncated
// palettes. In BMP, it treats alpha as a colour.
bool IsAsPillows(const Header& header) {
  switch (header.format) {
    case IFF_WEBP:
      return true;
    case IFF_PNM:
      return header.bits <= 8;
    case IFF_BMP:
      return header.bits == 1 || header.bits == 8 || header.bits == 24;
  }
  if (header.has_palette) return false;
  if (header.samples == 1) return header.bits == 1 || header.bits == 8 || header.bits == 16;
  return header.samples <= 3 && header.bits == 8;
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

struct Destroy {
  void operator()(Pix* image) const { pixDestroy(&image); }
};
using Image = std::unique_ptr<Pix, Destroy>;

// Like Pillow, this cuts 16 bits of grey off at 255 instead of scaling them.
void WriteGrey16(Pix* image, uint8_t* out) {
  for (int y = 0; y < pixGetHeight(image); ++y) {
    const l_uint32* const row = pixGetData(image) + int64_t{y} * pixGetWpl(image);
    for (int x = 0; x < pixGetWidth(image); ++x) {
      out = std::fill_n(out, 3, static_cast<uint8_t>(std::min<int>(GET_DATA_TWO_BYTES(row, x), 255)));
    }
  }
}

void WriteRgb(Pix* image, uint8_t* out) {
  for (int y = 0; y < pixGetHeight(image); ++y) {
    const l_uint32* const row = pixGetData(image) + int64_t{y} * pixGetWpl(image);
    for (int x = 0; x < pixGetWidth(image); ++x) {
      for (const int shift : {L_RED_SHIFT, L_GREEN_SHIFT, L_BLUE_SHIFT}) *out++ = row[x] >> shift;
    }
  }
}

// Otherwise it would print a line or more for each damaged file.
void Silence() {
  static const int severity = [] {
    leptSetStderrHandler([](const char*) {});
    return setMsgSeverity(L_SEVERITY_NONE);
  }();
  static_cast<void>(severity);
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
  Silence();
  bytes_ = bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(const Header header, ReadHeader(bytes));
  if (!IsAsPillows(header)) return Unsupported(header);
  size_ = {header.height, header.width};
  return size_;
}

absl::StatusOr<ImageView> LeptonicaDecoder::Decode() {
  Image image(pixReadMem(Data(bytes_), bytes_.size()));
  if (!image || pixGetHeight(image.get()) != size_.height || pixGetWidth(image.get()) != size_.width) {
    return Damaged(FormatOf(bytes_));
  }
  uint8_t* const pixels = buffer_.Reserve(3 * size_.height * size_.width);
  if (pixGetDepth(image.get()) == 16) {
    WriteGrey16(image.get(), pixels);
  } else {
    image.reset(pixConvertTo32(image.get()));
    if (!image) return absl::ResourceExhaustedError("Leptonica: no memory to convert an image to RGB");
    WriteRgb(image.get(), pixels);
  }
  return ImageView{pixels, 3 * size_.width, {0, 0, size_.height, size_.width}};
}

}  // namespace lockstep::data::internal
