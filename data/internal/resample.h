#ifndef LOCKSTEP_DATA_INTERNAL_RESAMPLE_H_
#define LOCKSTEP_DATA_INTERNAL_RESAMPLE_H_

#include <array>
#include <cstdint>

#include "lockstep/data/geometry.h"
#include "lockstep/data/image.h"
#include "lockstep/data/internal/resample_kernels.h"

namespace lockstep::data::internal {

// The destination of a result. Channel c of pixel (y, x) is element y * row_stride + c * plane_stride + x if it is
// planar, and otherwise element y * row_stride + x * 3 + c.
struct ResampleOutput {
  void* data = nullptr;
  bool floats = false;  // (value / 255 - mean) / std, in float; else the byte itself
  bool planar = true;
  int64_t row_stride = 0;
  int64_t plane_stride = 0;
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> std = {1, 1, 1};
};

// Writes `geometry` of an image with the bits of Pillow's crop(), resize(BILINEAR), crop() and transpose(). Its window
// is not empty and lies inside `resized`; `view` covers NeededSource(geometry).
//
// The horizontal pass comes first. It keeps only the rows that one row of the result needs.
void Resample(const ImageView& view, const Geometry& geometry, const ResampleOutput& output,
              const ResampleKernels& kernels = FastestResampleKernels());

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_RESAMPLE_H_
