// How fast this machine multiplies matrices, for MFU.

#ifndef LOCKSTEP_MODELS_TRANSFORMER_MATRIX_FLOPS_H_
#define LOCKSTEP_MODELS_TRANSFORMER_MATRIX_FLOPS_H_

#include <c10/core/ScalarType.h>

namespace lockstep::models {

// Returns the operations per second of products of large matrices of `dtype` on the CPU, with LibTorch's threads: the
// best of 0.2 s, which the first call in a process measures. MFU needs the dtype that the model multiplies in, under
// autocast bfloat16's.
//
//   const double mfu = tokens_per_second * models::FlopsPerToken(config, sequence) / (ranks * models::MatrixFlops());
double MatrixFlops(at::ScalarType dtype = at::kFloat);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_TRANSFORMER_MATRIX_FLOPS_H_
