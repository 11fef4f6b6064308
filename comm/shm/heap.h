// Memory inside a rank's part of the shared segment, for tensors that are reduced in place.

#ifndef LOCKSTEP_COMM_SHM_HEAP_H_
#define LOCKSTEP_COMM_SHM_HEAP_H_

#include <cstddef>
#include <map>
#include <mutex>

namespace lockstep::comm::shm {

// First fit over [data, data + bytes). The bookkeeping is this process's own: another rank's damage cannot reach it.
// Thread-safe. The pages of a freed block of kReturned bytes or more go back to the system; those of smaller ones stay
// for the next allocation.
class Heap {
 public:
  static constexpr size_t kReturned = size_t{1} << 20;

  Heap(char* data, size_t bytes);

  // 64-byte aligned, and 2 MiB aligned from that size on, so that huge pages fit. Null if there is no room. Contents
  // are whatever was there.
  char* Allocate(size_t bytes);

  // `pointer` is what Allocate() returned, or null.
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
