#ifndef LOCKSTEP_DDP_INTERNAL_DEVICE_CLOCK_H_
#define LOCKSTEP_DDP_INTERNAL_DEVICE_CLOCK_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace lockstep::ddp::internal {

// Measures when a device reaches some work, which may be long after the host has enqueued it. It uses events that the
// device stamps. Only Synchronize() blocks the host. One thread may use it at a time.
class DeviceClock {
 public:
  // Once it is dropped, its event is used again.
  using Moment = std::shared_ptr<const c10::Event>;

  explicit DeviceClock(c10::Device device);

  // The moment at which the current stream has done the work enqueued so far.
  Moment Now() { return NowOn(guard_.getStream(device_)); }

  // Calls `wait`, which orders the current stream after some work, and sets `moment` to the end of that work, even if
  // the current stream is busy until later. Does not set it if `wait` fails.
  absl::Status WaitFor(const std::function<absl::Status()>& wait, Moment& moment);

  // Blocks until the device has reached all of `moments`, and returns the present moment.
  Moment Synchronize(const std::vector<Moment>& moments);

  // In nanoseconds. The device must have reached both.
  static int64_t Between(const Moment& begin, const Moment& end);

 private:
  Moment NowOn(const c10::Stream& stream);

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream aside_;  // a stream without computations
  const std::shared_ptr<std::vector<std::unique_ptr<c10::Event>>> free_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_DEVICE_CLOCK_H_
