// Where loaded tensors go.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_PLACEMENT_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_PLACEMENT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/map_location.h"

namespace lockstep::checkpoint::internal {

// The device for what was saved on `saved`. FailedPrecondition where this program does not have it, Unimplemented for
// the meta device.
absl::StatusOr<c10::Device> DeviceFor(c10::Device saved, const MapLocation& map_location);

// In the host's memory, its bytes undefined; large ones in huge pages where the system has them.
absl::StatusOr<at::Tensor> HostTensor(c10::IntArrayRef sizes, at::ScalarType type);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_PLACEMENT_H_
