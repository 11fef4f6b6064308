// Buffers of one size, used again and again.

#ifndef LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_
#define LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::internal {

// On a CPU the buffers are of ProcessGroup::AllocateShared(), so collectives need no copy of them. The pool keeps buffers
// that are given back. On a GPU the current stream of Give() may still use a buffer: the current stream of the Take() that
// returns it waits for that. Not thread-safe.
class BufferPool {
 public:
  // Each buffer has `bytes` bytes on `device`. `group` is borrowed.
  BufferPool(comm::ProcessGroup* group, int64_t bytes, c10::Device device)
      : group_(group), bytes_(bytes), device_(device) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Allocates buffers until `count` are free. Throws StatusError if memory ran out.
  void Reserve(size_t count);
  // Returns the bytes of a buffer, uninitialised: the one that was given back first. Throws StatusError if memory ran out.
  at::Tensor Take();
  void Give(at::Tensor buffer);

  // The bytes of one buffer, and of all that have been allocated.
  int64_t buffer_bytes() const { return bytes_; }
  int64_t allocated_bytes() const { return allocated_ * bytes_; }

 private:
  struct Free {
    at::Tensor buffer;
    std::optional<c10::Stream> stream;  // that used it last
  };

  at::Tensor Allocate();

  comm::ProcessGroup* const group_;
  const int64_t bytes_;
  const c10::Device device_;
  int64_t allocated_ = 0;  // buffers
  std::deque<Free> free_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_BUFFER_POOL_H_
