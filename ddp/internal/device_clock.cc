#include "lockstep/ddp/internal/device_clock.h"

#include <c10/core/StreamGuard.h>

#include <utility>

namespace lockstep::ddp::internal {

// Other code takes streams from the same pools. The pool of high priority is used less.
DeviceClock::DeviceClock(c10::Device device)
    : device_(device),
      guard_(device.type()),
      aside_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/true)),
      free_(std::make_shared<std::vector<std::unique_ptr<c10::Event>>>()) {}

absl::Status DeviceClock::WaitFor(const std::function<absl::Status()>& wait, Moment& moment) {
  absl::Status status;
  {
    const c10::StreamGuard guard(aside_);
    status = wait();
  }
  if (!status.ok()) return status;
  moment = NowOn(aside_);
  moment->block(guard_.getStream(device_));
  return status;
}

DeviceClock::Moment DeviceClock::Synchronize(const std::vector<Moment>& moments) {
  for (const Moment& moment : moments) moment->synchronize();
  Moment now = NowOn(aside_);
  now->synchronize();
  return now;
}

int64_t DeviceClock::Between(const Moment& begin, const Moment& end) {
  return static_cast<int64_t>(begin->elapsedTime(*end) * 1e6);
}

DeviceClock::Moment DeviceClock::NowOn(const c10::Stream& stream) {
  std::unique_ptr<c10::Event> event;
  if (free_->empty()) {
    event = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // records times
  } else {
    event = std::move(free_->back());
    free_->pop_back();
  }
  event->record(stream);
  return Moment(event.release(), [free = free_](c10::Event* used) { free->emplace_back(used); });
}

}  // namespace lockstep::ddp::internal
