#include "lockstep/optim/number.h"

#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace lockstep::optim {

Number::Number(const at::Tensor& tensor) : tensor_(tensor.dim() == 0 ? tensor : tensor.squeeze()) {
  TORCH_CHECK_VALUE(tensor.numel() == 1, "Tensor lr must be 1-element");
}

Number::operator double() const { return is_tensor() ? tensor_.item<double>() : value_; }

void Number::Set(double value) {
  const c10::NoGradGuard no_grad;
  if (is_tensor()) {
    tensor_.fill_(value);
  } else {
    value_ = value;
  }
}

Number Number::Times(double factor) const {
  return is_tensor() ? Number(at::mul(tensor_, factor)) : Number(value_ * factor);
}

Number Number::DividedBy(double divisor) const {
  return is_tensor() ? Number(at::div(tensor_, divisor)) : Number(value_ / divisor);
}

Number Number::SubtractedFrom(double minuend) const {
  return is_tensor() ? Number(at::rsub(tensor_, minuend)) : Number(minuend - value_);
}

}  // namespace lockstep::optim
