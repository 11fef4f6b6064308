// ATen's square root of a few numbers, without the time of an operator's call.

#ifndef LOCKSTEP_OPTIM_INTERNAL_ROOT_H_
#define LOCKSTEP_OPTIM_INTERNAL_ROOT_H_

#include <cstdint>

namespace lockstep::optim::internal {

// to[i] = the square root of from[i] for n numbers, with the bits of at::sqrt(). `to` may be `from`. On x86 ATen calls
// MKL, whose square root does not round correctly on every processor. For floats there are two loops faster than MKL's,
// of which one has its bits on some processors, the other on others. A process's first call (of 20 ms) looks for the one
// that equals at::sqrt() on all 2^24 significands and parities of the exponent, and takes MKL's function if none does.
void Root(const float* from, float* to, int64_t n);
void Root(const double* from, double* to, int64_t n);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_ROOT_H_
