#ifndef LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_
#define LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::ddp::internal {

// Gives parameters another dtype during a forward and its backward.
class CastParameters {
 public:
  CastParameters(std::vector<at::Tensor> parameters, c10::ScalarType dtype);

  // Replaces the parameters' data by copies in the dtype. Autograd then makes new accumulators for them.
  void Cast();

  // Restores the parameters' data, and casts gradients in the dtype to the parameters' dtype. Does nothing if the
  // parameters are not cast.
  void Restore();

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> full_, low_;
  const c10::ScalarType dtype_;
  bool is_cast_ = false;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_
