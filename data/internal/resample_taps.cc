#include "lockstep/data/internal/resample_taps.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data::internal {
namespace {

struct Filter {
  Filter(int64_t source, int64_t resized)
      : source(source), scale(static_cast<double>(source) / resized), support(std::max(scale, 1.0)) {}

  double Center(int64_t index) const { return (index + 0.5) * scale; }

  // Towards zero, as Pillow rounds the first and the last tap.
  TapSpan Span(int64_t index) const {
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(Center(index) - support + 0.5), 0);
    return {first, std::min(static_cast<int64_t>(Center(index) + support + 0.5), source) - first};
  }

  double Weight(int64_t tap, double center) const {
    return std::max(1.0 - std::abs((tap - center + 0.5) * (1.0 / support)), 0.0);
  }

  int64_t source;
  double scale, support;
};

int32_t FixedPoint(double weight) { return static_cast<int32_t>(0.5 + weight * (1 << ResampleTaps::kWeightBits)); }

// `scratch` is overwritten.
void WriteWeights(const Filter& filter, int64_t index, const TapSpan& span, std::vector<double>& scratch,
                  int16_t* out) {
  const double center = filter.Center(index);
  scratch.resize(span.count);
  double sum = 0;
  for (int64_t i = 0; i < span.count; ++i) sum += scratch[i] = filter.Weight(span.first + i, center);
  for (int64_t i = 0; i < span.count; ++i) {
    const int32_t weight = FixedPoint(sum == 0 ? scratch[i] : scratch[i] / sum);
    int16_t* const group = out + i / ResampleTaps::kGroup * 2 * ResampleTaps::kGroup + i % ResampleTaps::kGroup;
    group[0] = static_cast<int16_t>(weight >> ResampleTaps::kLowerBits);
    group[ResampleTaps::kGroup] = static_cast<int16_t>(weight & ((1 << ResampleTaps::kLowerBits) - 1));
  }
}

}  // namespace

TapSpan BilinearSpan(int64_t source, int64_t resized, int64_t index) { return Filter(source, resized).Span(index); }

ResampleTaps BilinearTaps(int64_t source, int64_t resized, int64_t begin, int64_t size, bool reversed) {
  const Filter filter(source, resized);
  const auto index = [&](int64_t pixel) { return begin + (reversed ? size - 1 - pixel : pixel); };
  ResampleTaps taps;
  taps.spans.resize(size);
  int64_t most = 0;
  for (int64_t i = 0; i < size; ++i) {
    taps.spans[i] = filter.Span(index(i));
    most = std::max(most, taps.spans[i].count);
  }
  taps.groups = (most + ResampleTaps::kGroup - 1) / ResampleTaps::kGroup;
  const int64_t stride = taps.groups * 2 * ResampleTaps::kGroup;
  taps.weights.resize(size * stride);
  std::vector<double> scratch;
  for (int64_t i = 0; i < size; ++i)
    WriteWeights(filter, index(i), taps.spans[i], scratch, taps.weights.data() + i * stride);
  return taps;
}

}  // namespace lockstep::data::internal
