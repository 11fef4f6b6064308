#include "lockstep/checkpoint/file/in_threads.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep::checkpoint::file {

void InThreads(size_t count, const std::function<void()>& work) {
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < count) others.emplace_back(work);
  } catch (const std::system_error&) {
    // The user or the container has too many processes. The threads that did start do all of the work.
  }
  work();
  for (std::thread& other : others) other.join();
}

namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;
// More threads do not increase the bandwidth of memory.
constexpr uint64_t kMaxThreads = 8;

// A thread costs as much as reading some tens of KiB.
size_t ThreadsFor(const std::vector<Piece>& pieces) {
  uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.count;
  return std::min<uint64_t>({1 + total / kPiece, kMaxThreads, std::thread::hardware_concurrency()});
}

}  // namespace

std::vector<Piece> CutInPieces(const std::vector<uint64_t>& sizes) {
  std::vector<Piece> pieces;
  for (size_t whole = 0; whole < sizes.size(); ++whole) {
    for (uint64_t begin = 0; begin < sizes[whole]; begin += kPiece) {
      pieces.push_back({whole, begin, std::min(kPiece, sizes[whole] - begin)});
    }
  }
  return pieces;
}

void ForEachInThreads(const std::vector<Piece>& pieces, absl::FunctionRef<void(size_t)> work) {
  std::atomic<size_t> next{0};
  InThreads(ThreadsFor(pieces), [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) work(i);
  });
}

}  // namespace lockstep::checkpoint::file
