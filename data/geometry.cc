#include "lockstep/data/geometry.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/data/internal/resample_taps.h"

namespace lockstep::data {
namespace {

struct Range {
  int64_t first, size;
};

Range Clip(int64_t first, int64_t size, int64_t end) {
  const int64_t from = std::clamp<int64_t>(first, 0, end);
  return {from, std::clamp<int64_t>(first + size, 0, end) - from};
}

Range Needed(int64_t source, int64_t resized, Range window) {
  if (window.size == 0) return {0, 0};
  const internal::TapSpan first = internal::BilinearSpan(source, resized, window.first);
  const internal::TapSpan last = internal::BilinearSpan(source, resized, window.first + window.size - 1);
  return {first.first, last.first + last.count - first.first};
}

// Rounds a half away from 0.
int64_t Divide(int64_t value, int64_t denominator) { return (value + denominator / 2) / denominator; }

Range Shrunk(Range range, int64_t denominator) {
  // Rounding must not remove the pixel of the smaller image that contains the first of `range`.
  const int64_t end = std::max(Divide(range.first + range.size, denominator), range.first / denominator + 1);
  const int64_t first = std::min(Divide(range.first, denominator), end - 1);
  return {first, end - first};
}

}  // namespace

Geometry WholeImage(ImageSize image) {
  const Rectangle all = {0, 0, image.height, image.width};
  return {all, image, all};
}

Rectangle VisibleWindow(const Geometry& geometry) {
  const Range rows = Clip(geometry.window.top, geometry.window.height, geometry.resized.height);
  const Range columns = Clip(geometry.window.left, geometry.window.width, geometry.resized.width);
  if (rows.size == 0 || columns.size == 0) return {};
  return {rows.first, columns.first, rows.size, columns.size};
}

Rectangle NeededSource(const Geometry& geometry) {
  const Rectangle& source = geometry.source;
  const Rectangle window = VisibleWindow(geometry);
  const Range rows = Needed(source.height, geometry.resized.height, {window.top, window.height});
  const Range columns = Needed(source.width, geometry.resized.width, {window.left, window.width});
  return {source.top + rows.first, source.left + columns.first, rows.size, columns.size};
}

Geometry Shrunk(const Geometry& geometry, int64_t denominator) {
  const Range rows = Shrunk(Range{geometry.source.top, geometry.source.height}, denominator);
  const Range columns = Shrunk(Range{geometry.source.left, geometry.source.width}, denominator);
  Geometry shrunk = geometry;
  shrunk.source = {rows.first, columns.first, rows.size, columns.size};
  return shrunk;
}

}  // namespace lockstep::data
