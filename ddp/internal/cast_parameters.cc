#include "lockstep/ddp/internal/cast_parameters.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace lockstep::ddp::internal {

CastParameters::CastParameters(std::vector<at::Tensor> parameters, c10::ScalarType dtype)
    : parameters_(std::move(parameters)), full_(parameters_.size()), dtype_(dtype) {
  for (const at::Tensor& parameter : parameters_) low_.push_back(at::empty_like(parameter.detach(), dtype));
}

void CastParameters::Cast() {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    full_[i] = parameters_[i].variable_data();
    low_[i].copy_(full_[i]);
    parameters_[i].set_data(low_[i]);
  }
  is_cast_ = true;
}

void CastParameters::Restore() {
  if (!std::exchange(is_cast_, false)) return;
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_data(full_[i]);
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.defined() && gradient.scalar_type() == dtype_) gradient = gradient.to(full_[i].scalar_type());
  }
}

}  // namespace lockstep::ddp::internal
