#ifndef LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_
#define LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace lockstep::data::internal {

// Makes tensors for batches in the memory of those that their users have dropped: the system clears the pages of new
// memory one by one, which takes as long as a third of decoding the images that are to fill them.
class BatchMemory {
 public:
  // `most`: of as many tensors at once memory is kept. `pin_memory`: page-locked, of which LibTorch keeps some.
  BatchMemory(size_t most, bool pin_memory) : most_(most), pin_memory_(pin_memory) {}

  // [count, ...] of examples like `example`, not initialised. Images whose channels are innermost stay that in it.
  // Throws where there is no memory.
  at::Tensor Stack(const at::Tensor& example, int64_t count);

 private:
  at::Tensor Kept(at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format);

  const size_t most_;
  const bool pin_memory_;
  std::deque<c10::Storage> kept_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_
