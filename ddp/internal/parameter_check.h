#ifndef LOCKSTEP_DDP_INTERNAL_PARAMETER_CHECK_H_
#define LOCKSTEP_DDP_INTERNAL_PARAMETER_CHECK_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Compares `options`, a line for errors, and names, shapes, dtypes, strides and requires_grad of `parameters` over the
// ranks, through the group's store: no collective. InvalidArgument on every rank if any two differ, naming a rank that
// differs from rank 0 and the options or the first parameter with both sides. All ranks must be Lockstep ranks:
// GroupAccess::OnlyLockstepRanks().
absl::Status CheckSameParameters(comm::ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                                 const std::string& options = "");

// Compares shapes and strides of the `trained` parameters as Python's DistributedDataParallel does, for a group that
// may have Python ranks: an all_gather of their number, and a broadcast of rank 0's shapes and strides. InvalidArgument
// on the rank that differs.
absl::Status CheckSameParametersAsPython(comm::ProcessGroup& group, const std::vector<NamedTensor>& trained);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_PARAMETER_CHECK_H_
