#include "lockstep/comm/hierarchical/internal/pieces.h"

#include <algorithm>

namespace lockstep::comm::hierarchical::internal {
namespace {

// A piece costs the ranks of a host four meetings, so it is not too small; the first piece's way in and the last one's
// way out overlap with nothing, so it is not too large.
constexpr int64_t kLeastBytes = 256 << 10;
constexpr int64_t kMostBytes = 1 << 20;
constexpr int64_t kWantedPieces = 8;
// With many ranks and hosts a piece is larger: below this size a message takes longer than its bytes.
constexpr int64_t kLeastMessageBytes = 32 << 10;

}  // namespace

std::vector<Range> CutIntoPieces(int64_t count, int64_t element_bytes, int64_t parts, int64_t shares) {
  const int64_t of_messages = kLeastMessageBytes * parts * shares;
  const int64_t bytes = std::clamp(count * element_bytes / kWantedPieces, std::max(kLeastBytes, of_messages),
                                   std::max(kMostBytes, of_messages));
  const int64_t in_piece = std::max<int64_t>(1, bytes / element_bytes / parts) * parts;
  const int64_t whole = count / parts * parts;
  std::vector<Range> pieces;
  for (int64_t begin = 0; begin < whole; begin += in_piece)
    pieces.push_back({begin, std::min(in_piece, whole - begin)});
  if (whole != count) pieces.push_back({whole, count - whole});
  return pieces;
}

Range ShareOf(int64_t count, int index, int shares) {
  const int64_t begin = count * index / shares;
  return {begin, count * (index + 1) / shares - begin};
}

}  // namespace lockstep::comm::hierarchical::internal
