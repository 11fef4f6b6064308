// Decodes files with ImageDecoder, for tests.

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

// The bytes of `wanted`, row by row, of the image shrunk by `denominator`. On an error it fails the test and returns an
// empty result.
std::vector<uint8_t> Pixels(ImageDecoder& decoder, const std::string& file, const Rectangle& wanted,
                            int64_t denominator = 1);

// The status of opening `file` and decoding all of it.
absl::Status ErrorOf(const std::string& file, const ImageDecoderOptions& options = {});

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_DECODED_H_
