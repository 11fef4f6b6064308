// Divides data to be read into pieces for several threads.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_PIECES_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lockstep::checkpoint::internal {

// Bytes begin to begin + count of the thing numbered `whole`.
struct Piece {
  size_t whole;
  uint64_t begin;
  uint64_t count;
};

// `sizes`: the items' bytes. The pieces of one item are adjacent and in order.
std::vector<Piece> CutInPieces(const std::vector<uint64_t>& sizes);

// Calls work(i) for each of the pieces, in as many threads as the processor has, eight at most; few for few bytes. The
// calling thread is one of them.
void ForEachInThreads(const std::vector<Piece>& pieces, absl::FunctionRef<void(size_t)> work);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_PIECES_H_
