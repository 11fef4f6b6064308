// Small PNG files of every kind for tests.

#ifndef LOCKSTEP_DATA_TESTING_PNG_FILES_H_
#define LOCKSTEP_DATA_TESTING_PNG_FILES_H_

#include <cstdint>
#include <string>

#include "lockstep/data/image.h"

namespace lockstep::data::testing {

struct PngOptions {
  ImageSize size;
  int bits = 8;    // for each sample
  int colors = 2;  // PNG's colour type: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  bool interlaced = false;
  std::string palette = "";  // three bytes for each colour
};

// The contents of a PNG file. `rows` is the data before compression: for each row (if interlaced, for each row of each
// pass) the number of the filter and the samples.
std::string Png(const PngOptions& options, const std::string& rows);

// `bytes` as zlib compresses them.
std::string Deflated(const std::string& bytes);

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_PNG_FILES_H_
