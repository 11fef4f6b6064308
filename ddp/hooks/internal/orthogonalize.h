#ifndef LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_
#define LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_

#include <ATen/core/Tensor.h>

namespace lockstep::ddp::hooks::internal {

// Makes the columns of `matrix`, in place, orthonormal with the same span; it has no more columns than rows. A column
// that depends on those before it becomes some other direction or, where nothing is left of it, zero. `epsilon` is
// added to the norms that columns are divided by. The same bits for the same bits.
void Orthogonalize(const at::Tensor& matrix, double epsilon);

// Gives the columns of `matrix` that are all zeros, or not finite, the values of `start`, of the same shape.
void RestartUselessColumns(const at::Tensor& matrix, const at::Tensor& start);

}  // namespace lockstep::ddp::hooks::internal

#endif  // LOCKSTEP_DDP_HOOKS_INTERNAL_ORTHOGONALIZE_H_
