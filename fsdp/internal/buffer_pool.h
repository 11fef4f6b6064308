// Buffers of one size, used again and again.

#ifndef LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_
#define LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::internal {

// The buffers are of ProcessGroup::AllocateShared(), so collectives need no copy of them. The pool keeps buffers that are
// given back. Not thread-safe.
class BufferPool {
 public:
  // Each buffer has `bytes` bytes. `group` is borrowed.
  BufferPool(comm::ProcessGroup* group, int64_t bytes) : group_(group), bytes_(bytes) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Allocates buffers until `count` are free. Throws StatusError if memory ran out.
  void Reserve(size_t count);
  // Returns the bytes of a buffer, uninitialised. Throws StatusError if memory ran out.
  at::Tensor Take();
  void Give(at::Tensor buffer);

  // The bytes of one buffer, and of all that have been allocated.
  int64_t buffer_bytes() const { return bytes_; }
  int64_t allocated_bytes() const { return allocated_ * bytes_; }

 private:
  at::Tensor Allocate();

  comm::ProcessGroup* const group_;
  const int64_t bytes_;
  int64_t allocated_ = 0;  // buffers
  std::vector<at::Tensor> free_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_
