#ifndef LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_
#define LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::dp::internal {

// Connects copies[c][i], which have no history, to sources[i] in autograd: the sum of their gradients, in the order of
// the copies, becomes a gradient of the source. Sources that require no gradient are skipped. May be called again for
// the same copies.
//
// One graph node represents all of them. It has no state, so several graphs may lead to it. It runs as soon as the
// gradients of all copies have arrived.
void AttachCopies(const std::vector<at::Tensor>& sources, const std::vector<std::vector<at::Tensor>>& copies);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_SUM_OF_COPIES_H_
