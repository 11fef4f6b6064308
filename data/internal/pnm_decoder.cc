#include "lockstep/data/internal/pnm_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

constexpr absl::string_view kSpaces = " \t\n\v\f\r";
constexpr absl::string_view kLineEnds = "\n\r";
constexpr size_t kLongestNumber = 10;
constexpr int64_t kLongestSide = std::numeric_limits<int32_t>::max();
constexpr int64_t kLargestSample = 65535;

bool IsSpace(char c) { return kSpaces.find(c) != kSpaces.npos; }

// Takes a comment off the front of `rest`, with its end of line.
void SkipComment(absl::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_of(kLineEnds), rest.size() - 1) + 1);
}

// Takes a word off the front of `rest`, with the space behind it. A comment ends with its line and does not end a word,
// as in Pillow. Empty: there is none.
std::string TakeWord(absl::string_view& rest) {
  std::string word;
  while (!rest.empty() && word.size() <= kLongestNumber) {
    const char next = rest[0];
    if (next == '#') {
      SkipComment(rest);
      continue;
    }
    rest.remove_prefix(1);
    if (!IsSpace(next)) {
      word.push_back(next);
    } else if (!word.empty()) {
      break;
    }
  }
  return word;
}

// Takes a character that is neither space nor comment off the front of `rest`. Empty: there is none.
std::string TakeDigit(absl::string_view& rest) {
  while (!rest.empty()) {
    const char next = rest[0];
    if (next == '#') {
      SkipComment(rest);
      continue;
    }
    rest.remove_prefix(1);
    if (!IsSpace(next)) return std::string(1, next);
  }
  return "";
}

absl::Status Truncated() {
  return absl::DataLossError("expected more PNM data, found the end of the file: it is truncated");
}

absl::Status Damaged(absl::string_view what, int64_t least, int64_t most, const std::string& word) {
  return absl::DataLossError(absl::StrCat("expected ", what, " of a PNM file from ", least, " to ", most, ", found \"",
                                          absl::CHexEscape(word), "\": it is damaged"));
}

}  // namespace

bool PnmDecoder::Recognises(absl::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' && IsSpace(bytes[2]);
}

absl::StatusOr<ImageSize> PnmDecoder::Open(absl::string_view bytes) {
  const int kind = bytes[1] - '0';
  constexpr int kFirstOfBytes = 4;
  is_text_ = kind < kFirstOfBytes;
  const bool is_bitmap = kind == 1 || kind == kFirstOfBytes;
  colors_ = kind % 3 == 0 ? 3 : 1;
  rest_ = bytes.substr(3);
  LOCKSTEP_ASSIGN_OR_RETURN(size_.width, HeaderNumber("the width", kLongestSide));
  LOCKSTEP_ASSIGN_OR_RETURN(size_.height, HeaderNumber("the height", kLongestSide));
  max_ = 0;
  if (is_bitmap) return size_;
  LOCKSTEP_ASSIGN_OR_RETURN(max_, HeaderNumber("the largest sample", kLargestSample));
  return size_;
}

absl::StatusOr<int64_t> PnmDecoder::HeaderNumber(absl::string_view what, int64_t limit) {
  const std::string word = TakeWord(rest_);
  if (word.empty()) return Truncated();
  int64_t number = 0;
  if (!absl::SimpleAtoi(word, &number) || number < 1 || number > limit) return Damaged(what, 1, limit, word);
  return number;
}

absl::StatusOr<ImageView> PnmDecoder::Decode() {
  LOCKSTEP_RETURN_IF_ERROR(CheckLength());
  uint8_t* const pixels = buffer_.Reserve(3 * size_.height * size_.width);
  if (is_text_) {
    LOCKSTEP_RETURN_IF_ERROR(DecodeText(pixels));
  } else if (is_bitmap()) {
    DecodeBits(pixels);
  } else {
    DecodeNumbers(pixels);
  }
  return ImageView{pixels, 3 * size_.width, {0, 0, size_.height, size_.width}};
}

// Before memory is taken for the image. In text each sample has a digit, and a space unless it is a bit.
absl::Status PnmDecoder::CheckLength() const {
  const int64_t samples = size_.height * size_.width * colors_;
  int64_t expected = max_ > 255 ? 2 * samples : samples;
  if (is_text_) expected = is_bitmap() ? samples : 2 * samples - 1;
  if (!is_text_ && is_bitmap()) expected = size_.height * ((size_.width + 7) / 8);
  return static_cast<int64_t>(rest_.size()) < expected ? Truncated() : absl::OkStatus();
}

absl::StatusOr<int> PnmDecoder::TextSample() {
  const std::string word = is_bitmap() ? TakeDigit(rest_) : TakeWord(rest_);
  if (word.empty()) return Truncated();
  const int64_t most = is_bitmap() ? 1 : max_;
  int sample = 0;
  if (!absl::SimpleAtoi(word, &sample) || sample < 0 || sample > most) return Damaged("a sample", 0, most, word);
  return sample;
}

absl::Status PnmDecoder::DecodeText(uint8_t* out) {
  for (int64_t i = 0; i < size_.height * size_.width * colors_; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int sample, TextSample());
    out = Write(out, sample);
  }
  return absl::OkStatus();
}

void PnmDecoder::DecodeBits(uint8_t* out) {
  const int64_t row_bytes = (size_.width + 7) / 8;
  for (int64_t y = 0; y < size_.height; ++y) {
    for (int64_t x = 0; x < size_.width; ++x) out = Write(out, rest_[y * row_bytes + x / 8] >> (7 - x % 8) & 1);
  }
}

void PnmDecoder::DecodeNumbers(uint8_t* out) {
  const auto* at = reinterpret_cast<const uint8_t*>(rest_.data());
  for (int64_t i = 0; i < size_.height * size_.width * colors_; ++i) {
    int sample = *at++;
    if (max_ > 255) sample = sample << 8 | *at++;
    out = Write(out, sample);
  }
}

// Like Pillow, this scales grey with a maximum above 255 to 16 bits and cuts it off at 255. 1 is black in bits.
uint8_t* PnmDecoder::Write(uint8_t* out, int sample) const {
  if (is_bitmap()) return std::fill_n(out, 3, sample == 0 ? 255 : 0);
  const double white = colors_ == 1 && max_ > 255 ? 65535 : 255;
  const double scaled = max_ == 255 ? sample : std::nearbyint(static_cast<double>(sample) / max_ * white);
  return std::fill_n(out, colors_ == 1 ? 3 : 1, static_cast<uint8_t>(std::min(scaled, 255.0)));
}

}  // namespace lockstep::data::internal
