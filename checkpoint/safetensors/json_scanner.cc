#include "lockstep/checkpoint/safetensors/json_scanner.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/text.h"

namespace lockstep::checkpoint::safetensors {
namespace {

// Each escape's letter with its character.
constexpr absl::string_view kShortEscapes = "\"\"\\\\//b\bf\fn\nr\rt\t";

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

void AppendCodePoint(uint32_t point, std::string& to) {
  const auto tail = [&](int shift) { to.push_back(static_cast<char>(0x80 | ((point >> shift) & 0x3f))); };
  if (point < 0x80) {
    to.push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    to.push_back(static_cast<char>(0xc0 | (point >> 6)));
    tail(0);
  } else if (point < 0x10000) {
    to.push_back(static_cast<char>(0xe0 | (point >> 12)));
    tail(6);
    tail(0);
  } else {
    to.push_back(static_cast<char>(0xf0 | (point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Takes "uXXXX" from the front of `raw`.
bool TakeUnit(absl::string_view& raw, uint32_t& unit) {
  if (raw.size() < 5 || raw[0] != 'u') return false;
  unit = 0;
  for (const char c : raw.substr(1, 4)) {
    if (!absl::ascii_isxdigit(c)) return false;
    unit = unit * 16 + (absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10);
  }
  raw.remove_prefix(5);
  return true;
}

// Takes "uXXXX", or both escapes of a surrogate pair with the backslash between them.
bool TakeCodePoint(absl::string_view& raw, uint32_t& point) {
  if (!TakeUnit(raw, point)) return false;
  if (point < 0xd800 || point > 0xdfff) return true;
  uint32_t low = 0;
  if (point > 0xdbff || raw.empty() || raw[0] != '\\') return false;
  raw.remove_prefix(1);
  if (!TakeUnit(raw, low) || low < 0xdc00 || low > 0xdfff) return false;
  point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  return true;
}

// Decodes the text after a backslash.
bool TakeEscape(absl::string_view& raw, std::string& to) {
  for (size_t i = 0; i < kShortEscapes.size(); i += 2) {
    if (raw.empty() || raw[0] != kShortEscapes[i]) continue;
    to.push_back(kShortEscapes[i + 1]);
    raw.remove_prefix(1);
    return true;
  }
  uint32_t point = 0;
  if (!TakeCodePoint(raw, point)) return false;
  AppendCodePoint(point, to);
  return true;
}

}  // namespace

absl::Status JsonScanner::Error(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("byte ", at_, ": ", what));
}

absl::Status JsonScanner::Charge(size_t bytes) {
  if (bytes > memory_left_) return absl::ResourceExhaustedError("it takes more memory than LoadOptions::memory_limit");
  memory_left_ -= bytes;
  return absl::OkStatus();
}

bool JsonScanner::Take(char wanted) {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  if (at_ == text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

absl::Status JsonScanner::Expect(char wanted) {
  if (Take(wanted)) return absl::OkStatus();
  const std::string found =
      at_ == text_.size() ? "the end" : absl::StrCat("'", absl::CEscape(text_.substr(at_, 1)), "'");
  return Error(absl::StrCat("expected '", absl::string_view(&wanted, 1), "', found ", found));
}

absl::Status JsonScanner::Members(char closing, absl::FunctionRef<absl::Status()> member) {
  if (Take(closing)) return absl::OkStatus();
  do {
    LOCKSTEP_RETURN_IF_ERROR(member());
  } while (Take(','));
  return Expect(closing);
}

absl::Status JsonScanner::Object(absl::FunctionRef<absl::Status(std::string)> member) {
  LOCKSTEP_RETURN_IF_ERROR(Expect('{'));
  return Members('}', [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string key, String());
    LOCKSTEP_RETURN_IF_ERROR(Expect(':'));
    return member(std::move(key));
  });
}

absl::Status JsonScanner::Array(absl::FunctionRef<absl::Status()> element) {
  LOCKSTEP_RETURN_IF_ERROR(Expect('['));
  return Members(']', element);
}

absl::StatusOr<std::string> JsonScanner::String() {
  LOCKSTEP_RETURN_IF_ERROR(Expect('"'));
  size_t end = at_;
  while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size()) return Error("a string without end");
  const absl::string_view raw = text_.substr(at_, end - at_);
  LOCKSTEP_RETURN_IF_ERROR(Charge(raw.size()));
  std::string text;
  LOCKSTEP_RETURN_IF_ERROR(Unescape(raw, text));
  at_ = end + 1;
  return text;
}

absl::Status JsonScanner::Unescape(absl::string_view raw, std::string& to) const {
  if (!file::IsUtf8(raw)) return Error("a string that is not UTF-8");
  to.reserve(raw.size());
  while (!raw.empty()) {
    const char c = raw[0];
    if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
    raw.remove_prefix(1);
    if (c != '\\') {
      to.push_back(c);
    } else if (!TakeEscape(raw, to)) {
      return Error("a string with an escape that is none");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JsonScanner::Unsigned() {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  size_t end = at_;
  while (end < text_.size() && absl::ascii_isdigit(text_[end])) ++end;
  const absl::string_view digits = text_.substr(at_, end - at_);
  uint64_t value = 0;
  if (digits.empty() || (digits[0] == '0' && digits.size() > 1)) return Error("expected a whole number");
  if (!absl::SimpleAtoi(digits, &value)) return Error("a number past 64 bits");
  at_ = end;
  return value;
}

absl::Status JsonScanner::End() {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  return at_ == text_.size() ? absl::OkStatus() : Error("more than one JSON value");
}

std::string JsonString(absl::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const size_t escape = kShortEscapes.find(c);
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') {
      json.push_back(c);
    } else if (escape != absl::string_view::npos) {
      json.append({'\\', kShortEscapes[escape - escape % 2]});
    } else {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned char>(c));
    }
  }
  json.push_back('"');
  return json;
}

}  // namespace lockstep::checkpoint::safetensors
