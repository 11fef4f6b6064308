#include "lockstep/data/internal/device_copy.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::data::internal {
namespace {

c10::Stream StreamOn(c10::Device device) {
  const c10::impl::VirtualGuardImpl accelerator(device.type());
  return accelerator.getStreamFromGlobalPool(device.has_index() ? device : accelerator.getDevice());
}

}  // namespace

DeviceCopy::DeviceCopy(c10::Device device) : stream_(StreamOn(device)) {}

torch::data::Example<> DeviceCopy::operator()(const torch::data::Example<>& batch) const {
  const c10::Device device = stream_.device();
  const c10::Stream user = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  torch::data::Example<> copy;
  {
    const c10::StreamGuard guard(stream_);
    copy = {batch.data.to(device, /*non_blocking=*/true), batch.target.to(device, /*non_blocking=*/true)};
  }
  c10::Event copied(device.type());
  copied.record(stream_);
  copied.block(user);
  // Its memory is of the copying stream: it is not to be used again there before the user's is through with it.
  copy.data.record_stream(user);
  copy.target.record_stream(user);
  return copy;
}

}  // namespace lockstep::data::internal
