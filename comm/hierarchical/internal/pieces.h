// Cuts a tensor into pieces that follow each other through the phases of an all_reduce. Pure.

#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECES_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECES_H_

#include <cstdint>
#include <vector>

namespace lockstep::comm::hierarchical::internal {

// Elements [begin, begin + count) of a tensor.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const Range& other) const { return begin == other.begin && count == other.count; }
};

// Up to so many bytes every rank of a host gets the host's sum and exchanges all of it with its column: one step within
// the host and one between hosts, where larger tensors take two steps within the host.
constexpr int64_t kSmallBytes = 8 << 10;

// Returns the pieces of a tensor, in order. Each is divided among `parts` ranks of a host, and each part into `shares`
// messages to other hosts. Every piece has a multiple of `parts` elements. If `parts` does not divide `count`, the
// remainder of fewer elements is a last piece. A tensor without elements has no pieces.
std::vector<Range> CutIntoPieces(int64_t count, int64_t element_bytes, int64_t parts, int64_t shares);

// Share `index` of `count` elements that `shares` ranks divide: sizes differ by one at most.
Range ShareOf(int64_t count, int index, int shares);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECES_H_
