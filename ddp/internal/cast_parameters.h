#ifndef LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_
#define LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::ddp::internal {

// Parameters that are of another dtype for the time of a forward and its backward.
class CastParameters {
 public:
  CastParameters(std::vector<at::Tensor> parameters, c10::ScalarType dtype);

  // The parameters' data become copies in the dtype. Their autograd accumulators are new ones then.
  void Cast();

  // The parameters are themselves again, and gradients in the dtype are cast to theirs. Nothing where not cast.
  void Restore();

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> full_, low_;
  const c10::ScalarType dtype_;
  bool is_cast_ = false;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_CAST_PARAMETERS_H_
