// Items divided into blocks whose sizes differ by one at most.

#ifndef LOCKSTEP_BASE_EVEN_BLOCKS_H_
#define LOCKSTEP_BASE_EVEN_BLOCKS_H_

#include <cstdint>

namespace lockstep {

// Returns the first item of block number `block`, where `items` items are in `blocks` even blocks: items * block /
// blocks. The block ends before BlockBegin(items, blocks, block + 1). `blocks` is positive and at most 2^31.
constexpr int64_t BlockBegin(int64_t items, int64_t blocks, int64_t block) {
  return items / blocks * block + items % blocks * block / blocks;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_EVEN_BLOCKS_H_
