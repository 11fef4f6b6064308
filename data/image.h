// Sizes, rectangles and pixels of images.

#ifndef LOCKSTEP_DATA_IMAGE_H_
#define LOCKSTEP_DATA_IMAGE_H_

#include <cstdint>

namespace lockstep::data {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// Rows [top, top + height) and columns [left, left + width), in pixels.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// Borrowed pixels of the rectangle `covers` of an image. A pixel has three bytes: red, green, blue. Pixel (y, x) of the
// image is at pixels + (y - covers.top) * stride + (x - covers.left) * 3.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t stride = 0;  // bytes from one row to the next
  Rectangle covers;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_H_
