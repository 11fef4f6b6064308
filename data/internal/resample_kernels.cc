#include "lockstep/data/internal/resample_kernels.h"

#include <algorithm>

namespace lockstep::data::internal {
namespace {

constexpr int kWeightBits = ResampleTaps::kWeightBits;

int32_t Weight(const int16_t* weights, int64_t tap) {
  const int16_t* const group = weights + tap / ResampleTaps::kGroup * 2 * ResampleTaps::kGroup;
  const int64_t i = tap % ResampleTaps::kGroup;
  return (group[i] << ResampleTaps::kLowerBits) + group[ResampleTaps::kGroup + i];
}

// Above 255 only if the rounding errors of some 10,000 weights add up.
uint8_t Rounded(int32_t sum) {
  return static_cast<uint8_t>(std::min((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 255));
}

void Horizontal(const uint8_t* row, const ResampleTaps& taps, int64_t plane_stride, uint8_t* out) {
  const int64_t pixel_stride = plane_stride == 0 ? 3 : 1;
  const int64_t channel_stride = plane_stride == 0 ? 1 : plane_stride;
  for (size_t i = 0; i < taps.spans.size(); ++i) {
    int32_t sums[3] = {};
    for (int64_t tap = 0; tap < taps.spans[i].count; ++tap) {
      const int32_t weight = Weight(taps.weights_of(i), tap);
      const uint8_t* const pixel = row + (taps.spans[i].first + tap) * 3;
      for (int channel = 0; channel < 3; ++channel) sums[channel] += weight * pixel[channel];
    }
    for (int channel = 0; channel < 3; ++channel)
      out[i * pixel_stride + channel * channel_stride] = Rounded(sums[channel]);
  }
}

void Vertical(const uint8_t* const* rows, const int16_t* weights, int64_t count, int64_t size, uint8_t* out) {
  for (int64_t i = 0; i < size; ++i) {
    int32_t sum = 0;
    for (int64_t tap = 0; tap < count; ++tap) sum += Weight(weights, tap) * rows[tap][i];
    out[i] = Rounded(sum);
  }
}

void Normalize(const uint8_t* in, const float* mean, const float* std, int64_t size, float* out) {
  for (int64_t i = 0; i < size; ++i) {
    const int64_t phase = i % ResampleKernels::kPeriod;
    out[i] = (in[i] / 255.0f - mean[phase]) / std[phase];
  }
}

}  // namespace

const ResampleKernels& PortableResampleKernels() {
  static constexpr ResampleKernels kKernels = {Horizontal, Vertical, Normalize};
  return kKernels;
}

const ResampleKernels& FastestResampleKernels() {
  const ResampleKernels* const avx2 = Avx2ResampleKernels();
  return avx2 ? *avx2 : PortableResampleKernels();
}

}  // namespace lockstep::data::internal
