#include "lockstep/data/internal/tiff_colors.h"

#include <algorithm>

namespace lockstep::data::internal {
namespace {

uint8_t Clamp(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

int Sample16(const TiffKind& kind, const uint8_t* at) {
  return kind.is_big_endian ? at[0] << 8 | at[1] : at[1] << 8 | at[0];
}

// Sample `i` of a row, of 8 bits or less.
int SmallSample(const TiffKind& kind, const uint8_t* row, int64_t i) {
  if (kind.bits == 8) return row[i];
  const int64_t bit = i * kind.bits;
  return row[bit / 8] >> (8 - kind.bits - bit % 8) & ((1 << kind.bits) - 1);
}

// The upper 8 of its 16 bits, or all of 8.
int UpperBits(const TiffKind& kind, const uint8_t* row, int64_t i) {
  return kind.bits == 8 ? row[i] : Sample16(kind, row + 2 * i) >> 8;
}

// Like Pillow, this cuts 16 bits off at 255 instead of scaling them, and never inverts them.
uint8_t Grey(const TiffKind& kind, const uint8_t* row, int64_t i) {
  if (kind.bits == 16) return std::min(Sample16(kind, row + 2 * i), 255);
  const int grey = SmallSample(kind, row, i) * 255 / ((1 << kind.bits) - 1);
  return kind.photometric == kWhiteIsZero ? 255 - grey : grey;
}

int WithoutAlpha(int color, int alpha) { return alpha == 0 ? 0 : Clamp(255 * color / alpha); }

void RgbOf(const TiffKind& kind, const uint8_t* row, int64_t pixel, uint8_t* out) {
  const int64_t first = pixel * kind.samples;
  const int alpha = kind.is_premultiplied ? UpperBits(kind, row, first + 3) : 255;
  for (int c = 0; c < 3; ++c) out[c] = WithoutAlpha(UpperBits(kind, row, first + c), alpha);
}

void RgbOfInk(const TiffKind& kind, const uint8_t* row, int64_t pixel, uint8_t* out) {
  const int64_t first = pixel * kind.samples;
  const int white = 255 - UpperBits(kind, row, first + 3);
  for (int c = 0; c < 3; ++c) {
    const int product = UpperBits(kind, row, first + c) * white + 128;
    out[c] = Clamp(white - ((product + (product >> 8)) >> 8));  // The product by 255, rounded.
  }
}

// One term of a colour, in 64ths, with the rounding of Pillow's tables.
int Term(double factor, uint8_t sample) { return static_cast<int>(factor * (sample - 128) * 64 + 0.5); }

void RgbOfYcbcr(const uint8_t* pixel, uint8_t* out) {
  const int y = pixel[0];
  const uint8_t cb = pixel[1];
  const uint8_t cr = pixel[2];
  out[0] = Clamp(y + (Term(1.402, cr) >> 6));
  out[1] = Clamp(y + ((Term(-0.34414, cb) + Term(-0.71414, cr)) >> 6));
  out[2] = Clamp(y + (Term(1.772, cb) >> 6));
}

void RgbOfPalette(const TiffKind& kind, const std::vector<int64_t>& palette, int entry, uint8_t* out) {
  for (int c = 0; c < 3; ++c) out[c] = palette[(c << kind.bits) + entry] / 256;
}

}  // namespace

void UndoDifferences(const TiffKind& kind, int64_t rows, uint8_t* bytes) {
  const int64_t step = kind.samples / kind.planes;
  const int64_t samples = step * kind.block.width;
  for (int64_t y = 0; y < rows; ++y) {
    uint8_t* const row = bytes + y * kind.row_bytes();
    for (int64_t i = step; i < samples; ++i) {
      if (kind.bits == 8) {
        row[i] += row[i - step];
        continue;
      }
      const int sum = Sample16(kind, row + 2 * i) + Sample16(kind, row + 2 * (i - step));
      row[2 * i + (kind.is_big_endian ? 0 : 1)] = sum >> 8;
      row[2 * i + (kind.is_big_endian ? 1 : 0)] = sum;
    }
  }
}

void TiffRowToRgb(const TiffKind& kind, const std::vector<int64_t>& palette, const uint8_t* row, int64_t width,
                  uint8_t* out) {
  for (int64_t x = 0; x < width; ++x, out += 3) {
    switch (kind.photometric) {
      case kTiffRgb:
        RgbOf(kind, row, x, out);
        break;
      case kTiffCmyk:
        RgbOfInk(kind, row, x, out);
        break;
      case kTiffYcbcr:
        RgbOfYcbcr(row + 3 * x, out);
        break;
      case kTiffPalette:
        RgbOfPalette(kind, palette, SmallSample(kind, row, x * kind.samples), out);
        break;
      default:
        std::fill_n(out, 3, Grey(kind, row, x * kind.samples));
    }
  }
}

}  // namespace lockstep::data::internal
