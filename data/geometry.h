// Which pixels of an image a result is made of, and how: one crop, one resize, a window of it, mirrored or not.

#ifndef LOCKSTEP_DATA_GEOMETRY_H_
#define LOCKSTEP_DATA_GEOMETRY_H_

#include <cstdint>

#include "lockstep/data/image.h"

namespace lockstep::data {

// Read `source` of an image, resize that to `resized`, keep `window` of that, and exchange its left and its right where
// `mirrored`. What of `window` lies outside of `resized` is black.
struct Geometry {
  Rectangle source;
  ImageSize resized;
  Rectangle window;
  bool mirrored = false;
};

// All of an image, as it is.
Geometry WholeImage(ImageSize image);

// The part of `window` that lies inside of `resized`, and so is made of pixels of the image. Empty where none is.
Rectangle VisibleWindow(const Geometry& geometry);

// The part of `source` that the window is made of, as a rectangle of the image: what has to be decoded. Empty where
// nothing of the window is visible.
Rectangle NeededSource(const Geometry& geometry);

// `geometry` with its source where it is in the image at 1/denominator of its size: in whole pixels of that, the
// nearest ones, and at least one each way. The size to resize to stays, and what is made of it.
Geometry Shrunk(const Geometry& geometry, int64_t denominator);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_GEOMETRY_H_
