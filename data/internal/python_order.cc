#include "lockstep/data/internal/python_order.h"

#include <cstddef>
#include <cstdint>

namespace lockstep::data::internal {
namespace {

// The number of bytes of a sequence that begins with `first`; 0 if a sequence cannot begin with it.
size_t SequenceLength(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

// False for overlong forms, surrogates and numbers beyond Unicode.
bool IsCodePoint(char32_t point, size_t length) {
  if (length == 3) return point >= 0x800 && (point < 0xd800 || point > 0xdfff);
  return length < 4 || (point >= 0x10000 && point <= 0x10ffff);
}

// Takes the first code point off `text`, which is not empty.
char32_t Next(absl::string_view& text) {
  const uint8_t first = text[0];
  const size_t length = SequenceLength(first);
  char32_t point = length == 1 ? first : first & (0x7f >> length);
  bool valid = length > 0 && length <= text.size();
  for (size_t i = 1; valid && i < length; ++i) {
    const uint8_t byte = text[i];
    valid = (byte & 0xc0) == 0x80;
    point = point << 6 | (byte & 0x3f);
  }
  valid = valid && IsCodePoint(point, length);
  text.remove_prefix(valid ? length : 1);
  return valid ? point : 0xdc00 + first;
}

}  // namespace

bool PythonLess(absl::string_view a, absl::string_view b) {
  while (!a.empty() && !b.empty()) {
    const char32_t x = Next(a), y = Next(b);
    if (x != y) return x < y;
  }
  return a.empty() && !b.empty();
}

}  // namespace lockstep::data::internal
