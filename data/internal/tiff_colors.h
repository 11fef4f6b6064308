#ifndef LOCKSTEP_DATA_INTERNAL_TIFF_COLORS_H_
#define LOCKSTEP_DATA_INTERNAL_TIFF_COLORS_H_

#include <cstdint>
#include <vector>

#include "lockstep/data/internal/tiff_kind.h"

namespace lockstep::data::internal {

// Replaces the differences in `rows` rows of `kind.row_bytes()` bytes by the samples that they stand for.
void UndoDifferences(const TiffKind& kind, int64_t rows, uint8_t* bytes);

// Converts `width` pixels, whose samples lie side by side from `row` on, to red, green and blue in `out`, as Pillow
// does. `palette` has 3 * 2^bits numbers of 16 bits if there is one.
void TiffRowToRgb(const TiffKind& kind, const std::vector<int64_t>& palette, const uint8_t* row, int64_t width,
                  uint8_t* out);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_TIFF_COLORS_H_
