// Shares work among several threads, and divides data to be read into pieces for them.

#ifndef LOCKSTEP_CHECKPOINT_FILE_IN_THREADS_H_
#define LOCKSTEP_CHECKPOINT_FILE_IN_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"

namespace lockstep::checkpoint::file {

// Runs `work` on `count` threads at a time, including the caller's, and returns when all have ended. If the system
// refuses threads, there are fewer. So `work` must take parts from a shared list until none is left. It must not throw.
void InThreads(size_t count, const std::function<void()>& work);

// Bytes begin to begin + count of the item numbered `whole`.
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

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_IN_THREADS_H_
