// Small TIFF files of every kind for tests.

#ifndef LOCKSTEP_DATA_TESTING_TIFF_FILES_H_
#define LOCKSTEP_DATA_TESTING_TIFF_FILES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::data::testing {

// Numbers by TIFF's numbers of tags, such as 256 for the width.
using TiffEntries = std::map<uint16_t, std::vector<uint16_t>>;

// The contents of a little-endian TIFF file with `entries`, and with `blocks` as its strips, or as its tiles if the
// entries have their width (322).
std::string Tiff(const TiffEntries& entries, const std::vector<std::string>& blocks);

// The entries of an uncompressed image in one strip.
TiffEntries TiffOf(uint16_t height, uint16_t width, uint16_t photometric, uint16_t bits, uint16_t samples,
                   const TiffEntries& more = {});

}  // namespace lockstep::data::testing

#endif  // LOCKSTEP_DATA_TESTING_TIFF_FILES_H_
