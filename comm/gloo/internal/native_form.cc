#include "lockstep/comm/gloo/internal/native_form.h"

#include <ATen/ops/view_as_real.h>

#include <cstdlib>
#include <utility>

namespace lockstep::comm::internal {
namespace {

using RedOp = c10d::ReduceOp;

ReducedForm InPlace(at::Tensor tensor, RedOp::RedOpType op) { return {std::move(tensor), op, nullptr}; }

ReducedForm Widened(const at::Tensor& tensor, c10::ScalarType dtype, RedOp::RedOpType op) {
  const at::Tensor wide = tensor.to(dtype);
  // The low bits of a wide sum or product are the sum or product modulo the narrow type's range.
  return {wide, op, [tensor, wide] { tensor.copy_(wide); }};
}

ReducedForm OfBool(const at::Tensor& tensor, RedOp::RedOpType op) {
  const bool is_or = op == RedOp::SUM || op == RedOp::MAX || op == RedOp::BOR;
  return InPlace(tensor.view(c10::kByte), is_or ? RedOp::MAX : op == RedOp::BXOR ? RedOp::BXOR : RedOp::MIN);
}

[[noreturn]] void Refuse(const char* operation, c10::ScalarType dtype, const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, operation, " of ", c10::toString(dtype), ": the gloo backend has no ", what);
  std::abort();
}

ReducedForm OfForeign(const char* operation, const at::Tensor& tensor, RedOp::RedOpType op) {
  const c10::ScalarType dtype = tensor.scalar_type();
  switch (dtype) {
    case c10::kBool:
      return OfBool(tensor, op);
    case c10::kShort:
    case c10::kUInt16:
      return Widened(tensor, c10::kInt, op);
    case c10::kUInt32:
      return Widened(tensor, c10::kLong, op);
    case c10::kUInt64:
      if (op == RedOp::MIN || op == RedOp::MAX) Refuse(operation, dtype, "minimum or maximum");
      return InPlace(tensor.view(c10::kLong), op);
    case c10::kComplexHalf:
    case c10::kComplexFloat:
    case c10::kComplexDouble:
      if (op != RedOp::SUM) Refuse(operation, dtype, "reduction but sum and average");
      return InPlace(at::view_as_real(tensor), op);
    default:
      Refuse(operation, dtype, "reduction");
  }
}

}  // namespace

bool IsNative(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf || dtype == c10::kBFloat16 ||
         dtype == c10::kByte || dtype == c10::kChar || dtype == c10::kInt || dtype == c10::kLong || dtype == c10::kBool;
}

at::Tensor MovedForm(const at::Tensor& tensor) {
  const at::Tensor detached = tensor.detach();
  return IsNative(tensor.scalar_type()) ? detached : detached.view({-1}).view(c10::kByte);
}

ReducedForm Reduce(const char* operation, const at::Tensor& tensor, RedOp::RedOpType op, int size) {
  const at::Tensor detached = tensor.detach();
  const bool average = op == RedOp::AVG;
  const RedOp::RedOpType sum = average ? RedOp::SUM : op;
  const bool native = IsNative(tensor.scalar_type()) && tensor.scalar_type() != c10::kBool;
  ReducedForm form = native ? InPlace(detached, sum) : OfForeign(operation, detached, sum);
  // Divides the form's tensor, whose dtype supports division. Nothing is copied back, since integers have no average.
  if (average) form.after = [reduced = form.tensor, size] { reduced.div_(size); };
  return form;
}

}  // namespace lockstep::comm::internal
