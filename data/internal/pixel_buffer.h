#ifndef LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_
#define LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::data {

// Memory that is kept from image to image, and never cleared: a std::vector would fill with zeros what is written next.
class PixelBuffer {
 public:
  // At least `size` bytes of any value. What earlier calls returned is no longer valid.
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

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_PIXEL_BUFFER_H_
