#ifndef LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_
#define LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_

#include <ATen/core/Tensor.h>

namespace lockstep::ddp::hooks::internal {

// Makes the columns of `matrix` orthonormal with the same span, in place. It must have at most as many columns as rows.
// A column that depends on the columns before it becomes another direction or, if nothing is left of it, zero.
// `epsilon` is added to the norms that columns are divided by. Equal inputs give equal bits.
void Orthogonalize(const at::Tensor& matrix, double epsilon);

// Replaces the columns of `matrix` that are all zeros, or not finite, by the columns of `start`, which has the same
// shape.
void RestartUselessColumns(const at::Tensor& matrix, const at::Tensor& start);

}  // namespace lockstep::ddp::hooks::internal

#endif  // LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_
