#ifndef LOCKSTEP_COMM_GLOO_INTERNAL_NATIVE_FORM_H_
#define LOCKSTEP_COMM_GLOO_INTERNAL_NATIVE_FORM_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace lockstep::comm::internal {

// Returns whether Gloo supports the dtype: float, double, half, bfloat16, bool, and integers of 8, 32 and (signed) 64
// bits.
bool IsNative(c10::ScalarType dtype);

// `tensor` in a form that Gloo can move: itself, or a view of its bytes. It shares the memory of `tensor`.
at::Tensor MovedForm(const at::Tensor& tensor);

// A reduction that Gloo does not support, expressed by one that it supports.
struct ReducedForm {
  at::Tensor tensor;            // Gloo reduces this in place
  c10d::ReduceOp op;            // with this operation
  std::function<void()> after;  // to be called afterwards; may be null
};

// Prepares the reduction of `tensor` over `size` ranks. An average is a sum and a division. The sum of bools is "or",
// and their product is "and". Integers of 16 bits and unsigned 32 bits are widened. Complex numbers are summed by real
// and imaginary part. Throws c10::NotImplementedError, naming `operation` and the dtype, for products of complex
// numbers, minima and maxima of uint64, and reductions of 8-bit floats.
ReducedForm Reduce(const char* operation, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, int size);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_GLOO_INTERNAL_NATIVE_FORM_H_
