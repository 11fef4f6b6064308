#ifndef LOCKSTEP_COMM_GLOO_NATIVE_FORM_H_
#define LOCKSTEP_COMM_GLOO_NATIVE_FORM_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace lockstep::comm {

// Whether Gloo knows the dtype: float, double, half, bfloat16, bool and the 8, 32 and (signed) 64 bit integers.
bool IsNative(c10::ScalarType dtype);

// `tensor` to be moved by Gloo: itself, or its bytes. The same memory either way.
at::Tensor MovedForm(const at::Tensor& tensor);

// A reduction that Gloo does not know, put into one that it knows.
struct ReducedForm {
  at::Tensor tensor;            // what Gloo reduces in place
  c10d::ReduceOp op;            // how
  std::function<void()> after;  // then; may be null
};

// For `tensor` to become its reduction over `size` ranks: an average is a sum that is divided; a bool's sum is "or" and
// its product "and"; 16 bit and unsigned 32 bit integers are widened; complex numbers are summed by their parts. Throws
// c10::NotImplementedError, naming `operation` and the dtype, for the rest: products of complex numbers, minima and
// maxima of uint64, and reductions of 8 bit floats.
ReducedForm Reduce(const char* operation, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, int size);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_GLOO_NATIVE_FORM_H_
