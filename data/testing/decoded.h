// What an ImageDecoder makes of a file, for tests.

#ifndef LOCKSTEP_DATA_TESTING_DECODED_H_
#define LOCKSTEP_DATA_TESTING_DECODED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_decoder.h"

namespace lockstep::data::testing {

// All of an image of `size`.
Rectangle Whole(const ImageSize& size);

// The bytes of `wanted`, row by row, of the image shrunk by `denominator`. Fails the test, and is empty, where there is
// an error.
std::vector<uint8_t> Pixels(ImageDecoder& decoder, const std::string& file, const Rectangle& wanted,
                            int64_t denominator = 1);

// What opening `file` and decoding the whole of it returns.
absl::Status ErrorOf(const std::string& file, const ImageDecoderOptions& options = {});

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_DECODED_H_
