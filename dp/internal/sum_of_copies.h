#ifndef LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_
#define LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::dp::internal {

// Attaches copies[c][i], which have no history, to sources[i] as autograd sees it: what their gradients sum to, in the
// order of the copies, is a gradient of the source. Sources that require none are left out. May be called again for the
// same copies.
//
// One node of the graph stands for all of them. It has no state, so any number of graphs may lead to it, and it runs as
// soon as the gradients of all copies are there.
void AttachCopies(const std::vector<at::Tensor>& sources, const std::vector<std::vector<at::Tensor>>& copies);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_
