#include "lockstep/data/internal/jpeg_markers.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::data::internal {
namespace {

constexpr uint8_t kEndOfImage = 0xd9;

absl::Status Damaged(uint8_t marker, size_t at) {
  return absl::DataLossError(absl::StrCat("expected JPEG data, found the marker ff", absl::Hex(marker, absl::kZeroPad2),
                                          " at byte ", at - 1, ": it is damaged"));
}

// Stuffing, filling and restart markers do not end a scan's data.
bool IsData(uint8_t second) { return second == 0 || second == 1 || second == 0xff || (second & 0xf8) == 0xd0; }

// Segments with a length that may occur between scans or after them: tables, a scan's header, the number of lines,
// comments.
bool HasSegment(uint8_t marker) {
  constexpr absl::string_view kSegments = "\xc4\xcc\xda\xdb\xdc\xdd\xfe";
  return kSegments.find(static_cast<char>(marker)) != kSegments.npos || (marker & 0xf0) == 0xe0;
}

// Where the second byte of the next marker is.
size_t NextMarker(absl::string_view bytes, size_t from) {
  for (size_t i = bytes.find('\xff', from); i != bytes.npos; i = bytes.find('\xff', i + 1)) {
    if (i + 1 < bytes.size() && !IsData(static_cast<uint8_t>(bytes[i + 1]))) return i + 1;
  }
  return bytes.npos;
}

size_t BigEndian(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) << 8 | static_cast<uint8_t>(bytes[at + 1]);
}

}  // namespace

absl::StatusOr<bool> HasJpegEnd(absl::string_view bytes, size_t data) {
  for (;;) {
    const size_t at = NextMarker(bytes, data);
    if (at == bytes.npos) return false;
    const auto marker = static_cast<uint8_t>(bytes[at]);
    if (marker == kEndOfImage) return true;
    if (!HasSegment(marker)) return Damaged(marker, at);
    if (at + 2 >= bytes.size()) return false;
    data = at + 1 + BigEndian(bytes, at + 1);
  }
}

}  // namespace lockstep::data::internal
