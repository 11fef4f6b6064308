#include "lockstep/dp/internal/copy.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::dp::internal {
namespace {

// A stream besides the device's current one. It waits for the work enqueued on the current stream so far.
c10::Stream SideStream(const c10::impl::VirtualGuardImpl& streams, c10::Device device) {
  const c10::Stream side = streams.getStreamFromGlobalPool(device);
  c10::Event before(device.type());
  before.record(streams.getStream(device));
  before.block(side);
  return side;
}

void WaitFor(const c10::impl::VirtualGuardImpl& streams, const c10::Stream& side) {
  c10::Event copied(side.device_type());
  copied.record(side);
  copied.block(streams.getStream(side.device()));
}

// Pageable memory cannot be read asynchronously, so the tensor is pinned. A tensor that needs gradients is not, since
// pinning is not differentiable.
at::Tensor Staged(const at::Tensor& tensor) {
  const bool differentiable = tensor.requires_grad() && at::GradMode::is_enabled();
  return differentiable || tensor.is_pinned() ? tensor : tensor.pin_memory();
}

at::Tensor FromCpu(const at::Tensor& tensor, c10::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream side = SideStream(streams, device);
  at::Tensor copy;
  {
    const c10::StreamGuard guard(side);
    copy = Staged(tensor).to(device, /*non_blocking=*/true);
  }
  WaitFor(streams, side);
  copy.record_stream(streams.getStream(device));
  return copy;
}

// A copy between GPUs runs on the source's current stream, and makes it and the target's current stream wait for each
// other. So other streams are made current for the copy.
at::Tensor FromPeer(const at::Tensor& tensor, c10::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream source = SideStream(streams, tensor.device()), target = SideStream(streams, device);
  at::Tensor copy;
  {
    const c10::StreamGuard source_guard(source), target_guard(target);
    copy = tensor.to(device, /*non_blocking=*/true);
  }
  WaitFor(streams, target);
  tensor.record_stream(source);
  copy.record_stream(streams.getStream(device));
  return copy;
}

}  // namespace

at::Tensor CopyTo(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  if (device.is_cuda() && tensor.is_cpu()) return FromCpu(tensor, device);
  if (device.is_cuda() && tensor.is_cuda()) return FromPeer(tensor, device);
  return tensor.to(device);
}

}  // namespace lockstep::dp::internal
