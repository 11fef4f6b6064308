// CRC-32 as zip archives use it (polynomial 0xEDB88320).

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_CRC32_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_CRC32_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::checkpoint::internal {

// The CRC of what `crc` covers followed by `count` bytes; 0 covers nothing.
uint32_t ExtendCrc32(uint32_t crc, const void* from, size_t count);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_CRC32_H_
