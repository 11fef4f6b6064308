// Where an image's pixels are.

#ifndef LOCKSTEP_DATA_IMAGE_H_
#define LOCKSTEP_DATA_IMAGE_H_

#include <cstdint>

namespace lockstep::data {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// Rows [top, top + height) of columns [left, left + width), in pixels.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// Borrowed pixels of an image: those of `covers`, a rectangle of it. Three bytes a pixel: red, green, blue. Pixel (y,
// x) of the image is at pixels + (y - covers.top) * stride + (x - covers.left) * 3.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t stride = 0;  // bytes from a row to the next
  Rectangle covers;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IMAGE_H_
