// Allocates memory inside a rank's part of the shared segment, for tensors that are reduced in place.

#ifndef LOCKSTEP_COMM_SHM_HEAP_H_
#define LOCKSTEP_COMM_SHM_HEAP_H_

#include <cstddef>
#include <map>
#include <mutex>

namespace lockstep::comm::shm {

// First fit over [data, data + bytes). The bookkeeping is in this process's private memory, so damage by another rank
// cannot reach it. Thread-safe. The pages of a freed block of at least kReturned bytes are returned to the system.
// The pages of smaller blocks are kept for the next allocation.
class Heap {
 public:
  static constexpr size_t kReturned = size_t{1} << 20;

  Heap(char* data, size_t bytes);

  // 64-byte aligned; from 2 MiB on 2 MiB aligned, for huge pages. Null if the heap is full. The contents are undefined.
  char* Allocate(size_t bytes);

  // `pointer` must be from Allocate(), or null.
  void Free(char* pointer);

  size_t used_bytes() const;

 private:
  char* const data_;
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset to size; neighbours are merged
  std::map<size_t, size_t> used_;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_HEAP_H_
