#ifndef LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_
#define LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_

#include <cstdint>

#include "lockstep/data/internal/resample_taps.h"

namespace lockstep::data {

// Where Resample() spends its time, for one kind of processor; the results are the same to the bit for every kind.
//
// Kernels may read and write up to kSlack bytes beyond the end of what they are given.
struct ResampleKernels {
  static constexpr int64_t kSlack = 16;
  // A period of mean and std: of eight floats at once and of three channels.
  static constexpr int64_t kPeriod = 24;

  // Makes taps.spans.size() pixels of three bytes from those of `row`. Reads all `groups` of each: so beyond spans, and
  // kSlack. A channel's bytes come plane_stride after those of the one before, which is a multiple of 16; where that is
  // 0 pixels stay whole.
  void (*horizontal)(const uint8_t* row, const ResampleTaps& taps, int64_t plane_stride, uint8_t* out);

  // Makes `size` bytes, each of the ones at its place in `rows`, a pointer for every weight of the groups of `weights`
  // that hold the `count` taps. kSlack bytes follow each row.
  void (*vertical)(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t size, uint8_t* out);

  // out[i] = (in[i] / 255 - mean[i % kPeriod]) / std[i % kPeriod], each step rounded, for exactly `size` i.
  void (*normalize)(const uint8_t* in, const float* mean, const float* std, int64_t size, float* out);
};

// In C++ alone.
const ResampleKernels& PortableResampleKernels();

// The fastest that this processor runs.
const ResampleKernels& FastestResampleKernels();

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_H_
