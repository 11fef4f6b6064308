#include "lockstep/data/tokens/internal/character_map.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

// Calls visit(number, contents) for each field with a length in a message in protobuf's wire format, up to the first
// that cannot be read: a message that sentencepiece does not read either.
template <typename Visit>
void VisitFields(absl::string_view message, const Visit& visit) {
  const auto varint = [&message] {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const uint64_t byte = static_cast<uint8_t>(message.front());
      message.remove_prefix(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (!message.empty()) {
    const uint64_t tag = varint();
    const uint64_t type = tag & 7;
    if (type == 0) {
      varint();
      continue;
    }
    if (type != 1 && type != 2 && type != 5) return;
    const uint64_t length = type == 1 ? 8 : type == 5 ? 4 : varint();
    if (length > message.size()) return;
    if (type == 2) visit(tag >> 3, message.substr(0, length));
    message.remove_prefix(length);
  }
}

// A trie of Darts-clone (https://github.com/s-yata/darts-clone) from the bytes of characters to places in `texts`. A
// node's offset leads to a group of 256 units, one for each byte that may follow.
class Trie {
 public:
  Trie(absl::string_view units, size_t texts)
      : units_(units.size() / 4), texts_(texts), depths_(units_.size(), kUnknown) {
    memcpy(units_.data(), units.data(), units_.size() * 4);
  }

  bool IsSound() { return !units_.empty() && Depth(OffsetOf(units_[0])) <= kMostDepth; }

 private:
  static constexpr int kUnknown = -1;
  // sentencepiece has room for 32 results of a search, and its own maps are far less deep.
  static constexpr int kMostDepth = 32;
  static constexpr int kUnsound = kMostDepth + 1;

  static uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
  static bool HasText(uint32_t unit) { return (unit >> 8) & 1; }
  static uint32_t TextOf(uint32_t unit) { return unit & 0x7fffffff; }
  static uint32_t ByteOf(uint32_t unit) { return unit & (1U << 31 | 0xff); }  // above 0xff: a text, not a node

  // The bytes that may follow the node whose group is at `at`: above kMostDepth where that is too many, endless, or
  // leads out of the trie.
  int Depth(size_t at) {
    if ((at | 0xff) >= units_.size()) return kUnsound;
    if (depths_[at] != kUnknown) return depths_[at];
    depths_[at] = kUnsound;  // for a node below that leads back here
    int depth = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t unit = units_[at ^ byte];
      if (ByteOf(unit) == byte) depth = std::max(depth, 1 + DepthBelow(at ^ byte, unit));
    }
    return depths_[at] = std::min(depth, kUnsound);
  }

  int DepthBelow(size_t place, uint32_t unit) {
    const size_t at = place ^ OffsetOf(unit);
    const int depth = Depth(at);
    return depth < kUnsound && HasText(unit) && TextOf(units_[at]) >= texts_ ? kUnsound : depth;
  }

  std::vector<uint32_t> units_;
  const size_t texts_;
  std::vector<int> depths_;  // by the place of a group
};

// The map's trie is behind its length in bytes. The texts, each with a zero byte at its end, are behind the trie.
bool IsSound(absl::string_view map) {
  uint32_t length = 0;
  if (map.size() < sizeof(length)) return map.empty();
  memcpy(&length, map.data(), sizeof(length));
  map.remove_prefix(sizeof(length));
  return length <= map.size() && Trie(map.substr(0, length), map.size() - length).IsSound();
}

}  // namespace

absl::Status CheckCharacterMaps(absl::string_view model) {
  // https://github.com/google/sentencepiece, src/sentencepiece_model.proto.
  constexpr uint64_t kNormalizer = 3, kDenormalizer = 5, kMap = 2;
  bool sound = true;
  VisitFields(model, [&](uint64_t number, absl::string_view part) {
    if (number != kNormalizer && number != kDenormalizer) return;
    VisitFields(part, [&](uint64_t inner, absl::string_view map) { sound = sound && (inner != kMap || IsSound(map)); });
  });
  return sound ? absl::OkStatus() : absl::DataLossError("its character map is damaged");
}

}  // namespace lockstep::data::internal
