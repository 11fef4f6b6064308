#ifndef LOCKSTEP_DATA_INTERNAL_DEVICE_COPY_H_
#define LOCKSTEP_DATA_INTERNAL_DEVICE_COPY_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <torch/data/example.h>

namespace lockstep::data::internal {

// Copies batches to an accelerator on a separate stream, so that they do not wait for work already queued there.
class DeviceCopy {
 public:
  // `device`: with or without an index; without, the current one. Throws c10::Error where LibTorch has none of the
  // kind.
  explicit DeviceCopy(c10::Device device);

  // `batch` there, for work on the current stream, which waits for the copy; the calling thread does not if `batch` is
  // in page-locked memory. Throws c10::Error.
  torch::data::Example<> operator()(const torch::data::Example<>& batch) const;

 private:
  const c10::Stream stream_;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_DEVICE_COPY_H_
