#ifndef LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_
#define LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::data::internal {

// Memory that is reused from image to image and never cleared. A std::vector would first fill it with zeros.
class PixelBuffer {
 public:
  // Returns at least `size` bytes with undefined contents. Pointers from earlier calls become invalid.
  uint8_t* Reserve(size_t size) {
    if (size > size_) {
      bytes_.reset(new uint8_t[size]);
      size_ = size;
    }
    return bytes_.get();
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_
