#include "lockstep/comm/watch/internal/frame.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::internal {
namespace {

constexpr size_t kLengthSize = 4;
constexpr size_t kHeaderSize = 1 + 4 + 4 + 8 + 8;  // type, rank, code, sequence, value

template <typename T>
void Put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

template <typename T>
T Take(const char*& in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  in += sizeof(T);
  return static_cast<T>(value);
}

bool IsType(uint8_t number) {
  return number >= static_cast<uint8_t>(Frame::Type::kHello) && number <= static_cast<uint8_t>(Frame::Type::kFarewell);
}

}  // namespace

std::string Encode(const Frame& frame) {
  const size_t text_size = frame.text.size() < kMaxFrameText ? frame.text.size() : kMaxFrameText;
  std::string out;
  out.reserve(kLengthSize + kHeaderSize + text_size);
  Put(out, static_cast<uint32_t>(kHeaderSize + text_size));
  Put(out, static_cast<uint8_t>(frame.type));
  Put(out, frame.rank);
  Put(out, frame.code);
  Put(out, frame.sequence);
  Put(out, frame.value);
  out.append(frame.text, 0, text_size);
  return out;
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  const size_t available = buffer_.size() - consumed_;
  if (available < kLengthSize) return std::optional<Frame>();
  const char* in = buffer_.data() + consumed_;
  const size_t length = Take<uint32_t>(in);
  if (length < kHeaderSize || length - kHeaderSize > max_text_) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", length, " bytes"));
  }
  // The type is checked as soon as it has arrived, so that a stranger's frame is refused at once.
  if (available > kLengthSize && !IsType(static_cast<uint8_t>(*in))) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of type ", static_cast<uint8_t>(*in)));
  }
  if (available < kLengthSize + length) return std::optional<Frame>();
  Frame frame;
  frame.type = static_cast<Frame::Type>(Take<uint8_t>(in));
  frame.rank = Take<int32_t>(in);
  frame.code = Take<int32_t>(in);
  frame.sequence = Take<int64_t>(in);
  frame.value = Take<int64_t>(in);
  frame.text.assign(in, length - kHeaderSize);
  consumed_ += kLengthSize + length;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace lockstep::comm::internal
