// Several tensors as one flat buffer.

#ifndef LOCKSTEP_COMM_INTERNAL_FLAT_H_
#define LOCKSTEP_COMM_INTERNAL_FLAT_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::internal {

// Copies the elements of `tensors`, one tensor after the other, into a new one-dimensional tensor outside the autograd
// graph. The tensors must have one dtype and device.
at::Tensor Flatten(const std::vector<at::Tensor>& tensors);

// The reverse: copies to each tensor its part of `flat`. A tensor on the CPU that has these bytes already is not
// written, so that autograd does not take it for modified.
void Unflatten(const at::Tensor& flat, const std::vector<at::Tensor>& tensors);

// Overwrites the tensors of every rank with the tensors of rank `root`. They travel in flat buffers of one dtype and
// device. A buffer ends with the tensor that brings it to 250 MiB or more. PyTorch issues the same broadcasts in the
// same order. All ranks must call it.
absl::Status BroadcastCoalesced(ProcessGroup& group, const std::vector<at::Tensor>& tensors, int root = 0);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_FLAT_H_
