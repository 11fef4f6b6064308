#include "lockstep/fsdp/internal/device_streams.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep::fsdp::internal {
namespace {

using c10::impl::VirtualGuardImpl;

void MakeWait(const c10::Stream& waiting, const c10::Stream& other) {
  if (waiting == other) return;
  c10::Event moment(other.device_type());
  moment.record(other);
  moment.block(waiting);
}

}  // namespace

std::optional<c10::Stream> CurrentStream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return VirtualGuardImpl(device.type()).getStream(device);
}

void AwaitStream(const std::optional<c10::Stream>& other) {
  if (other) MakeWait(*CurrentStream(other->device()), *other);
}

void KeepForCurrentStream(const at::Tensor& tensor) {
  const std::optional<c10::Stream> stream = CurrentStream(tensor.device());
  if (stream) VirtualGuardImpl(stream->device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), *stream);
}

void StreamUses::Add(c10::Device device) {
  const std::optional<c10::Stream> stream = CurrentStream(device);
  if (!stream || std::find(streams_.begin(), streams_.end(), *stream) != streams_.end()) return;
  if (!streams_.empty()) MakeWait(*stream, streams_.front());
  streams_.push_back(*stream);
}

void StreamUses::Await() {
  for (const c10::Stream& stream : streams_) AwaitStream(stream);
  streams_.clear();
}

SideStream::SideStream(c10::Device device) : device_(device) {
  if (!device.is_cpu())
    stream_ = VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

c10::OptionalStreamGuard SideStream::Enter() const {
  if (stream_) MakeWait(*stream_, *CurrentStream(device_));
  return c10::OptionalStreamGuard(stream_);
}

}  // namespace lockstep::fsdp::internal
