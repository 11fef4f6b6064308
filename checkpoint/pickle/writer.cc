#include "lockstep/checkpoint/pickle/writer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::checkpoint::pickle {

PickleWriter::PickleWriter() {
  Op(kOpProto);
  Put<uint8_t>(2);
}

template <typename T>
void PickleWriter::Put(T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value <= 0xff) {
    Op(kOpBinInt1);
    Put<uint8_t>(value);
  } else if (value >= 0 && value <= 0xffff) {
    Op(kOpBinInt2);
    Put<uint16_t>(value);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    Op(kOpBinInt);
    Put<int32_t>(value);
  } else {
    Op(kOpLong1);
    Put<uint8_t>(sizeof(value));
    Put<int64_t>(value);
  }
}

void PickleWriter::Double(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Op(kOpBinFloat);
  Put<uint64_t>(__builtin_bswap64(bits));
}

void PickleWriter::Text(absl::string_view text) {
  Op(kOpBinUnicode);
  Put<uint32_t>(text.size());
  out_.append(text.data(), text.size());
}

void PickleWriter::String(absl::string_view text) {
  const auto known = strings_.find(text);
  if (known != strings_.end()) return Get(known->second);
  Text(text);
  strings_.emplace(text, Memoize());
}

// Protocol 2 has no bytes: Python writes them as text to be encoded in Latin-1.
void PickleWriter::Bytes(absl::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (code >= 0x80) text.push_back(static_cast<char>(0xc0 | code >> 6));
    text.push_back(static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code));
  }
  Global("_codecs", "encode");
  Text(text);
  String("latin1");
  Tuple2();
  Reduce();
}

void PickleWriter::Global(absl::string_view module, absl::string_view name) {
  const std::string full = absl::StrCat(module, "\n", name, "\n");
  const auto known = globals_.find(full);
  if (known != globals_.end()) return Get(known->second);
  Op(kOpGlobal);
  out_ += full;
  globals_.emplace(full, Memoize());
}

uint32_t PickleWriter::Memoize() {
  if (memoized_ <= 0xff) {
    Op(kOpBinPut);
    Put<uint8_t>(memoized_);
  } else {
    Op(kOpLongBinPut);
    Put<uint32_t>(memoized_);
  }
  return memoized_++;
}

void PickleWriter::Get(uint32_t number) {
  if (number <= 0xff) {
    Op(kOpBinGet);
    Put<uint8_t>(number);
  } else {
    Op(kOpLongBinGet);
    Put<uint32_t>(number);
  }
}

std::string PickleWriter::Finish() && {
  Op(kOpStop);
  return std::move(out_);
}

}  // namespace lockstep::checkpoint::pickle
