// CRC-32 as in zip archives (polynomial 0xEDB88320), by carry-less multiplication if the processor supports it.

#ifndef LOCKSTEP_CHECKPOINT_ZIP_CRC32_H_
#define LOCKSTEP_CHECKPOINT_ZIP_CRC32_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::checkpoint::zip {

// Extends `crc` by `count` bytes; the CRC of no data is 0. In cache, on a Xeon of 2023: 19 GB/s, 47 with AVX-512.
// Without such instructions it is as fast as zlib.
uint32_t ExtendCrc32(uint32_t crc, const void* from, size_t count);

// The CRC of two stretches one after the other, from that of each; the second has `count` bytes.
uint32_t CombineCrc32(uint32_t first, uint32_t second, uint64_t count);

}  // namespace lockstep::checkpoint::zip

#endif  // LOCKSTEP_CHECKPOINT_ZIP_CRC32_H_
