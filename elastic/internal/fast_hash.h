// A fast hash of memory.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_FAST_HASH_H_
#define LOCKSTEP_ELASTIC_INTERNAL_FAST_HASH_H_

#include <stddef.h>
#include <stdint.h>

namespace lockstep::elastic::internal {

// Returns a hash of `size` bytes; the same in every process. If all changed bytes are in one aligned word of 8 bytes,
// the hash always changes. Otherwise it hardly ever stays the same, unless somebody chose the bytes: it is not
// cryptographic.
uint64_t FastHash(const void* data, size_t size);

// A hash of two hashes. If one of them changes, it changes.
uint64_t CombineHashes(uint64_t a, uint64_t b);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_FAST_HASH_H_
