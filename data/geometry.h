// The geometry of an image transform: one crop, one resize, a window of the result, and optional mirroring.

#ifndef LOCKSTEP_DATA_GEOMETRY_H_
#define LOCKSTEP_DATA_GEOMETRY_H_

#include <cstdint>

#include "lockstep/data/image.h"

namespace lockstep::data {

// Crop `source` from an image, resize it to `resized`, keep `window` of that, and swap left and right if `mirrored`.
// The part of `window` outside `resized` is black.
struct Geometry {
  Rectangle source;
  ImageSize resized;
  Rectangle window;
  bool mirrored = false;
};

// The whole image, unchanged.
Geometry WholeImage(ImageSize image);

// The part of `window` inside `resized`, whose pixels come from the image. Empty if there is none.
Rectangle VisibleWindow(const Geometry& geometry);

// The part of `source` that the window needs, as a rectangle of the image: the pixels to decode. Empty if nothing of
// the window is visible.
Rectangle NeededSource(const Geometry& geometry);

// `geometry` for the image at 1/denominator of its size. The source is rounded to the nearest whole pixels of the
// smaller image, and has at least one pixel in each direction. The other fields do not change.
Geometry Shrunk(const Geometry& geometry, int64_t denominator);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_GEOMETRY_H_
