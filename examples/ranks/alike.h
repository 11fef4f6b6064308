// Checks whether ranks, or two models, have the same parameters.

#ifndef LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_
#define LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// The concatenated values of all tensors, on the CPU and without a graph.
at::Tensor Flat(const std::vector<at::Tensor>& tensors);

// The largest difference of two values at the same position. NaN if there is a NaN.
double MaxDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// Checks whether all ranks have bit-identical parameters. Internal, naming a rank that differs: they do not. All ranks
// must call it.
absl::Status CheckAlike(const std::vector<at::Tensor>& parameters, comm::ProcessGroup& group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_
