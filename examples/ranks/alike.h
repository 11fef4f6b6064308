// Whether ranks, or two models, have come to the same parameters.

#ifndef LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_
#define LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::examples {

// The values of all of them one after another, on the CPU and without a graph.
at::Tensor Flat(const std::vector<at::Tensor>& tensors);

// The largest difference of two values at one place; NaN where there is one.
double MaxDifference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

// Whether the ranks hold the same parameters, to the bit; Internal, naming a rank that differs, if not. All ranks must
// call it.
absl::Status CheckAlike(const std::vector<at::Tensor>& parameters, comm::ProcessGroup& group);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RANKS_ALIKE_H_
