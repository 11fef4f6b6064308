// The order of work on a device's streams. On a CPU, where work is done when its call returns, nothing needs an order: all
// of this does nothing there.

#ifndef LOCKSTEP_FSDP_INTERNAL_DEVICE_STREAMS_H_
#define LOCKSTEP_FSDP_INTERNAL_DEVICE_STREAMS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>
#include <vector>

namespace lockstep::fsdp::internal {

// Returns this thread's current stream of the device; std::nullopt on a CPU.
std::optional<c10::Stream> CurrentStream(c10::Device device);

// Makes the current stream wait for the work that `other` has been given so far. The thread does not wait.
void AwaitStream(const std::optional<c10::Stream>& other);

// Keeps the tensor's memory, if it is released, until the current stream has done the work that it has been given so far.
void KeepForCurrentStream(const at::Tensor& tensor);

// The streams that use some memory. Not thread-safe.
class StreamUses {
 public:
  // The current stream of the device uses the memory from now on. The first one writes to it; another one waits for what
  // the first was given so far.
  void Add(c10::Device device);
  // Makes the current stream wait for all of them, and forgets them.
  void Await();

 private:
  std::vector<c10::Stream> streams_;
};

// A stream beside the one that computes.
class SideStream {
 public:
  explicit SideStream(c10::Device device);

  // Until the result is destroyed, this stream is the thread's current one. It first waits for what the former has been
  // given so far.
  c10::OptionalStreamGuard Enter() const;
  // Makes the current stream wait for what this one has been given so far.
  void Await() const { AwaitStream(stream_); }

 private:
  const c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_DEVICE_STREAMS_H_
