#include "lockstep/checkpoint/internal/crc32.h"

#include <zlib.h>

namespace lockstep::checkpoint::internal {

uint32_t ExtendCrc32(uint32_t crc, const void* from, size_t count) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(from), count));
}

}  // namespace lockstep::checkpoint::internal
