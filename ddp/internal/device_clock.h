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

// When a device comes to something, which may be long after the host has enqueued it: events that the device stamps as
// they pass. Nothing here blocks the host but Synchronize(). One thread uses it at a time.
class DeviceClock {
 public:
  // Dropped, its event is used again.
  using Moment = std::shared_ptr<const c10::Event>;

  explicit DeviceClock(c10::Device device);

  // When the current stream will have done what it was told so far.
  Moment Now() { return NowOn(guard_.getStream(device_)); }

  // Calls `wait`, which orders the current stream after something, and notes in `moment` when that was over, unless
  // `wait` fails: also where the current stream is busy until later.
  absl::Status WaitFor(const std::function<absl::Status()>& wait, Moment& moment);

  // Blocks until the device has come to all of `moments`, and then gives this moment.
  Moment Synchronize(const std::vector<Moment>& moments);

  // In nanoseconds. The device must have come to both.
  static int64_t Between(const Moment& begin, const Moment& end);

 private:
  Moment NowOn(const c10::Stream& stream);

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream aside_;  // that nothing is computed on
  const std::shared_ptr<std::vector<std::unique_ptr<c10::Event>>> free_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_DEVICE_CLOCK_H_
