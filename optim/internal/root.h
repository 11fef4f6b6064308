// ATen's square root of a few numbers, without the time of an operator's call.

#ifndef LOCKSTEP_OPTIM_INTERNAL_ROOT_H_
#define LOCKSTEP_OPTIM_INTERNAL_ROOT_H_

#include <cstdint>

namespace lockstep::optim::internal {

// Replaces `n` numbers at `data` by their square roots, with the bits of at::sqrt(). On x86 ATen calls MKL, whose square
// root does not round correctly on every processor.
void Root(float* data, int64_t n);
void Root(double* data, int64_t n);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_ROOT_H_
