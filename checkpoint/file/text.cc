#include "lockstep/checkpoint/file/text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lockstep::checkpoint::file {

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 60;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kLongest)), text.size() > kLongest ? "...\"" : "\"");
}

namespace {

// The length that a UTF-8 sequence's first byte announces, 0 if it cannot be a first byte.
int SequenceLength(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 0;
}

bool IsSequence(absl::string_view bytes) {
  for (size_t i = 1; i < bytes.size(); ++i) {
    if ((bytes[i] & 0xc0) != 0x80) return false;
  }
  const auto first = static_cast<unsigned char>(bytes[0]),
             second = static_cast<unsigned char>(bytes.size() > 1 ? bytes[1] : 0);
  if (first == 0xe0 && second < 0xa0) return false;  // overlong
  if (first == 0xf0 && second < 0x90) return false;  // overlong
  return first != 0xf4 || second < 0x90;             // past U+10FFFF
}

}  // namespace

bool IsPythonText(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(static_cast<unsigned char>(text[at]));
    if (length == 0 || length > text.size() - at || !IsSequence(text.substr(at, length))) return false;
    at += length;
  }
  return true;
}

bool IsUtf8(absl::string_view text) {
  if (!IsPythonText(text)) return false;
  // 0xed begins the sequences of U+D000 to U+DFFF; those from U+D800 on are surrogates.
  for (size_t at = text.find('\xed'); at != absl::string_view::npos; at = text.find('\xed', at + 1)) {
    if (static_cast<unsigned char>(text[at + 1]) >= 0xa0) return false;
  }
  return true;
}

}  // namespace lockstep::checkpoint::file
