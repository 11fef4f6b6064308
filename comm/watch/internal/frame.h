// The messages between the ranks' watches.

#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_FRAME_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::comm::internal {

struct Frame {
  enum class Type : uint8_t {
    // From a rank to the hub.
    kHello = 1,  // rank, text: see handshake.h. The first of a connection
    kTrouble,    // sequence, code, text: an error of the rank's own, perhaps the sign of another's death
    kTimeout,    // sequence, text: the operation, value: the timeout in milliseconds
    kLong,       // sequence, text: the operation, value: for how many milliseconds the rank has been in this call
    kHere,       // value: which inquiry, sequence and text: the last call begun, code: 1 while it is in it
    kAgree,      // sequence, text: the fingerprint
    kDecide,     // code, text: this is the first cause, unless there is one. rank: whose own error it is, or -1
    kFate,       // rank, text: how that rank's process ended
    // From the hub to a rank.
    kChallenge,  // text: see handshake.h. The first of a connection
    kProof,      // text: see handshake.h. The answer to kHello
    kWelcome,    // every rank is here
    kCause,      // code, text: the group's first cause. rank: whose own error it is, or -1
    kAsk,        // value: an inquiry that kHere is to answer
    kAgreed,     // sequence
    kAskFate,    // rank
    kStall,  // text: which call lasts long, and why. rank: the first one that has not begun it, or -1. value: as kLong
    // Both ways.
    kFarewell,  // rank, sequence and text: the last call it began
  };

  Type type = Type::kHello;
  int32_t rank = -1;
  int32_t code = 0;  // an absl::StatusCode, except for kHere
  int64_t sequence = -1;
  int64_t value = 0;
  std::string text = "";
};

// The maximum length of a frame's text. Encode() truncates longer texts.
constexpr size_t kMaxFrameText = size_t{1} << 20;

// A length of 4 bytes, the type, the numbers, all little-endian, and the text.
std::string Encode(const Frame& frame);

// Finds frames in a stream of bytes that anybody may have sent. Not thread-safe.
class FrameReader {
 public:
  // InvalidArgument for frames whose text is longer than `max_text`.
  explicit FrameReader(size_t max_text = kMaxFrameText) : max_text_(max_text) {}

  void set_max_text(size_t max_text) { max_text_ = max_text; }
  void Append(const char* bytes, size_t size) { buffer_.append(bytes, size); }

  // The next frame; nothing if its last bytes are still to come; InvalidArgument once the stream holds anything else.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  size_t max_text_;
  std::string buffer_;
  size_t consumed_ = 0;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_FRAME_H_
