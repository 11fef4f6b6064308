// The batches of a Loader on their way to Next().

#ifndef LOCKSTEP_DATA_INTERNAL_BATCH_H_
#define LOCKSTEP_DATA_INTERNAL_BATCH_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/example.h"

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

// The places of a batch. Each is filled by one thread, and the order does not matter.
class BatchInProgress {
 public:
  explicit BatchInProgress(std::vector<size_t> indices) : indices_(std::move(indices)), errors_(indices_.size()) {}

  size_t size() const { return indices_.size(); }
  int64_t index(size_t place) const { return static_cast<int64_t>(indices_[place]); }

  // Allocates memory for examples like `example`. Call it before anything is filled. Throws if memory runs out.
  void Allocate(const Example& example, BatchMemory& memory);

  // Fills a place with its example from `dataset`. Does not throw.
  void Fill(size_t place, const Dataset& dataset, at::Generator& random);
  // Leaves a place out.
  void Fail(size_t place, absl::Status error) { errors_[place] = std::move(error); }
  const absl::Status& error(size_t place) const { return errors_[place]; }

  // Returns the filled examples in order. Call it once every place is filled or left out. Without any example the batch
  // has undefined tensors. Throws if memory runs out.
  Example Take();

 private:
  std::vector<size_t> indices_;
  std::vector<absl::Status> errors_;  // by place
  at::Tensor data_, target_;
};

// Copies batches to an accelerator on a separate stream, so that they do not wait for work already queued there.
class DeviceCopy {
 public:
  // `device`: without an index, the current device of its type. Throws c10::Error if LibTorch does not have this type
  // of device.
  explicit DeviceCopy(c10::Device device);

  // A copy of `batch` on the device, for work on the current stream, which waits for the copy. The calling thread does
  // not wait if `batch` is in page-locked memory. Throws c10::Error.
  Example operator()(const Example& batch) const;

 private:
  const c10::Stream stream_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_BATCH_H_
