// Small JPEG files of every kind for tests.

#ifndef LOCKSTEP_DATA_TESTING_JPEG_FILES_H_
#define LOCKSTEP_DATA_TESTING_JPEG_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::data::testing {

enum class JpegColors { kGrey, kRgb, kYcc, kCmyk, kYcck };

struct JpegOptions {
  ImageSize size = {37, 53};
  JpegColors colors = JpegColors::kYcc;
  // Horizontal and vertical sampling factor of each colour; 1 and 1 for colours without an entry. {{2, 2}} is 4:2:0.
  std::vector<ImageSize> sampling = {};
  int quality = 90;
  bool progressive = false;
  // If not empty, the colours of each pixel, row by row: as many values a pixel as `colors` has (CMYK as stored).
  std::vector<uint8_t> pixels = {};
  int restart_interval = 0;  // in blocks of all colours; 0: no markers
};

// The contents of a JPEG file. Without `pixels` the image has smooth colours and some noise, and depends only on the
// options.
std::string Jpeg(const JpegOptions& options = {});

// Returns `jpeg` with another size in its header.
std::string WithSize(std::string jpeg, const ImageSize& size);

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_JPEG_FILES_H_
