// Who sends which part of the state to the ranks that need it. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_TRANSFER_PLAN_H_
#define LOCKSTEP_ELASTIC_INTERNAL_TRANSFER_PLAN_H_

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace lockstep::elastic::internal {

// A message: a part of one tensor.
struct Piece {
  size_t tensor = 0;  // its number
  int64_t begin = 0;  // in bytes
  int64_t size = 0;   // in bytes
  int source = 0;     // the rank that sends it
};

// The most bytes of a piece: few enough for the processor's cache, where they are hashed.
inline constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Divides tensors of these sizes, in bytes, into pieces, of which each source sends about the same number of bytes. The
// same on every rank. `sources` is not empty.
std::vector<Piece> PlanTransfer(const std::vector<int64_t>& sizes, const std::vector<int>& sources,
                                int64_t piece_bytes = kPieceBytes);

// Returns whether sources broadcast the pieces to all ranks, instead of sending them to each receiver.
bool Broadcasts(size_t sources, size_t receivers);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_TRANSFER_PLAN_H_
