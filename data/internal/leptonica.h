// Leptonica's images, for the formats that stand on it.

#ifndef LOCKSTEP_DATA_INTERNAL_LEPTONICA_H_
#define LOCKSTEP_DATA_INTERNAL_LEPTONICA_H_

#include <leptonica/allheaders.h>

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

struct DestroyPix {
  void operator()(Pix* image) const { pixDestroy(&image); }
};
using PixPointer = std::unique_ptr<Pix, DestroyPix>;

// Stops Leptonica and libtiff, in the whole process, from printing lines about each damaged file. Call it before
// others.
void SilenceLeptonica();

// Null: Leptonica cannot read the file with the contents `bytes`.
PixPointer ReadPix(absl::string_view bytes);

// The image with 32 bits a pixel, for CopyRgbRow(). Null: there is no memory for it.
PixPointer ToRgb(PixPointer image);

// Writes the colours of row `y`, three bytes a pixel, to `out`.
void CopyRgbRow(Pix* image, int64_t y, uint8_t* out);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_LEPTONICA_H_
