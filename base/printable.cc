#include "lockstep/base/printable.h"

#include <stddef.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069: they change the order in which a terminal shows the
// text around them.
bool IsBidirectionalControl(absl::string_view character) {
  const unsigned char last = static_cast<unsigned char>(character.back());
  if (character == "\xD8\x9C") return true;
  if (absl::StartsWith(character, "\xE2\x80")) return last == 0x8E || last == 0x8F || (last >= 0xAA && last <= 0xAE);
  return absl::StartsWith(character, "\xE2\x81") && last >= 0xA6 && last <= 0xA9;
}

// The length of the printable character at the start of `text`; 0 if it does not start with one.
size_t PrintableLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool is_control = first == 0xC2 && byte(1) < 0xA0;  // U+0080 to U+009F: terminals may obey these too
  return is_control || IsBidirectionalControl(text.substr(0, length)) ? 0 : length;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = PrintableLength(text);
    const absl::string_view character = text.substr(0, std::max<size_t>(length, 1));
    absl::StrAppend(&printable, length == 0 ? absl::CHexEscape(character) : std::string(character));
    text.remove_prefix(character.size());
  }
  return printable;
}

}  // namespace lockstep
