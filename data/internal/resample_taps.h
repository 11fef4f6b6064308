#ifndef LOCKSTEP_DATA_INTERNAL_RESAMPLE_TAPS_H_
#define LOCKSTEP_DATA_INTERNAL_RESAMPLE_TAPS_H_

#include <cstdint>
#include <vector>

namespace lockstep::data::internal {

// The pixels of a line that contribute to one pixel of the resized line.
struct TapSpan {
  int64_t first = 0, count = 0;
};

// The taps of pixel `index` when a line of `source` pixels is resized to `resized`, as in Pillow's antialiased bilinear
// filter: the filter, a triangle, is as wide as two pixels of the coarser line.
TapSpan BilinearSpan(int64_t source, int64_t resized, int64_t index);

// The weights of some consecutive pixels of a resized line, with Pillow's weights to the bit: computed in double,
// normalised, rounded to fixed point of kWeightBits.
//
// Each weight is split as (upper << kLowerBits) + lower, so that both parts, and pixels, are factors for 16-bit
// multiply-and-add; sums of the parts modulo 2^32 give the exact sum. Four taps share a group: their upper parts, then
// their lower parts.
struct ResampleTaps {
  static constexpr int kWeightBits = 22;
  static constexpr int kLowerBits = 11;
  static constexpr int kGroup = 4;

  const int16_t* weights_of(int64_t pixel) const { return weights.data() + pixel * groups * 2 * kGroup; }

  std::vector<TapSpan> spans;    // of each pixel
  int64_t groups = 0;            // of each pixel; weights beyond its span are 0
  std::vector<int16_t> weights;  // [pixels, groups, {upper, lower}, kGroup]
};

// For pixels [begin, begin + size) when a line of `source` pixels is resized to `resized`, in reverse order if
// `reversed`. All but `begin` are positive.
ResampleTaps BilinearTaps(int64_t source, int64_t resized, int64_t begin, int64_t size, bool reversed = false);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_RESAMPLE_TAPS_H_
