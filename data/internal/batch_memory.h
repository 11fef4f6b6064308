#ifndef LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_
#define LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace lockstep::data::internal {

// Allocates tensors for batches, and reuses the memory of dropped ones. New memory is slow: the system clears its pages
// one by one, which takes a third of the time for decoding the images in them.
class BatchMemory {
 public:
  // `most`: the number of tensors whose memory is kept. `pin_memory`: memory is page-locked; LibTorch caches some of
  // it.
  BatchMemory(size_t most, bool pin_memory) : most_(most), pin_memory_(pin_memory) {}

  // An uninitialised tensor [count, ...] for examples like `example`. If an image's channels are innermost, so are the
  // batch's. Throws if memory runs out.
  at::Tensor Stack(const at::Tensor& example, int64_t count);

 private:
  at::Tensor Kept(at::IntArrayRef sizes, const at::TensorOptions& options, at::MemoryFormat format);

  const size_t most_;
  const bool pin_memory_;
  std::deque<c10::Storage> kept_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BATCH_MEMORY_H_
