// Allocates loaded tensors, and chooses their device.

#ifndef LOCKSTEP_CHECKPOINT_TENSORS_PLACEMENT_H_
#define LOCKSTEP_CHECKPOINT_TENSORS_PLACEMENT_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/map_location.h"

namespace lockstep::checkpoint::tensors {

// The device for data saved on `saved`. FailedPrecondition: this program does not have it. Unimplemented: the meta
// device.
absl::StatusOr<c10::Device> DeviceFor(c10::Device saved, const MapLocation& map_location);

// An uninitialised tensor in host memory. Large ones use huge pages if the system has them.
absl::StatusOr<at::Tensor> HostTensor(c10::IntArrayRef sizes, at::ScalarType type);

}  // namespace lockstep::checkpoint::tensors

#endif  // LOCKSTEP_CHECKPOINT_TENSORS_PLACEMENT_H_
