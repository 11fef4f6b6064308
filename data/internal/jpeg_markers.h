#ifndef LOCKSTEP_DATA_INTERNAL_JPEG_MARKERS_H_
#define LOCKSTEP_DATA_INTERNAL_JPEG_MARKERS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::data {

// Follows the markers of the JPEG file `bytes` from where its first scan's data begin to its end marker. DataLoss: it
// is truncated, or a marker is there that has no place after the first scan.
//
// Decoding a part of an image does not reach the file's end, so only this sees what Pillow, which does, finds there.
// Takes 7 microseconds for 50 KB.
absl::Status CheckJpegMarkers(absl::string_view bytes, size_t data);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_JPEG_MARKERS_H_
