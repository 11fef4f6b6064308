#ifndef LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_
#define LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_

#include <cstdint>

#include "lockstep/data/internal/resample_taps.h"

namespace lockstep::data::internal {

// The inner loops of Resample() for one kind of processor. The results have the same bits on every kind.
//
// Kernels may read and write up to kSlack bytes past the end of their arguments.
struct ResampleKernels {
  static constexpr int64_t kSlack = 16;
  // A period of mean and std: of eight floats at once and of three channels.
  static constexpr int64_t kPeriod = 24;

  // Computes taps.spans.size() pixels of three bytes from the pixels of `row`. Reads all `groups` of each pixel, so it
  // reads beyond spans, and kSlack. The bytes of a channel begin plane_stride bytes after the bytes of the previous
  // channel. plane_stride is a multiple of 16. If plane_stride is 0, the channels of a pixel are adjacent.
  void (*horizontal)(const uint8_t* row, const ResampleTaps& taps, int64_t plane_stride, uint8_t* out);

  // Computes `size` bytes, each from the bytes at its position in `rows`. `rows` has a pointer for each weight in the
  // groups of `weights` that hold the `count` taps. kSlack bytes follow each row.
  void (*vertical)(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t size, uint8_t* out);

  // out[i] = (in[i] / 255 - mean[i % kPeriod]) / std[i % kPeriod], each step rounded, for exactly `size` i.
  void (*normalize)(const uint8_t* in, const float* mean, const float* std, int64_t size, float* out);
};

// In plain C++.
const ResampleKernels& PortableResampleKernels();

// With AVX2. Null if this processor does not have it.
const ResampleKernels* Avx2ResampleKernels();

// The fastest ones that this processor supports.
const ResampleKernels& FastestResampleKernels();

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_
