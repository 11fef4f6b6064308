#include <ATen/ScalarOps.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "lockstep/optim/internal/program.h"

namespace lockstep::optim::internal {
namespace {

void Run(const Instruction& i, std::vector<at::Tensor>& registers) {
  const at::Tensor &a = registers[i.a], &b = registers[i.b], &c = registers[i.c];
  at::Tensor& to = registers[i.to];
  if (i.op == Op::kAsReal) return AsReal(registers);
  if (i.op == Op::kClone) {
    to = a.clone();
    return;
  }
  if (!to.defined()) to = at::empty({0}, a.options());
  switch (i.op) {
    case Op::kAsReal:
    case Op::kClone:
      break;
    case Op::kNeg:
      at::neg_out(to, a);
      break;
    case Op::kMul:
      at::mul_out(to, a, b);
      break;
    case Op::kMulScalar:
      at::mul_out(to, a, at::native::wrapped_scalar_tensor(i.scalar));
      break;
    case Op::kAdd:
      at::add_out(to, a, b, i.scalar);
      break;
    case Op::kAddScalar:
      at::add_out(to, a, at::native::wrapped_scalar_tensor(i.scalar));
      break;
    case Op::kDiv:
      at::div_out(to, a, b);
      break;
    case Op::kDivScalar:
      at::div_out(to, a, at::native::wrapped_scalar_tensor(i.scalar));
      break;
    case Op::kSqrt:
      at::sqrt_out(to, a);
      break;
    case Op::kMaximum:
      at::maximum_out(to, a, b);
      break;
    case Op::kLerp:
      at::lerp_out(to, a, b, i.scalar);
      break;
    case Op::kAddcmul:
      at::addcmul_out(to, a, b, c, i.scalar);
      break;
    case Op::kAddcdiv:
      at::addcdiv_out(to, a, b, c, i.scalar);
      break;
    case Op::kAsComplex:
      to = at::view_as_complex(to);
      break;
    case Op::kCopy:
      to.copy_(a);
      break;
    case Op::kReciprocal:
      at::reciprocal_out(to, a);
      break;
    case Op::kAbs:
      at::abs_out(to, a);
      break;
  }
}

}  // namespace

void AsReal(std::vector<at::Tensor>& registers) {
  for (at::Tensor& tensor : registers) {
    if (tensor.defined() && tensor.is_complex()) tensor = at::view_as_real(tensor);
  }
}

void RunAten(Task& task) {
  task.registers.resize(task.program.registers());
  for (const Instruction& instruction : task.program.instructions()) Run(instruction, task.registers);
}

}  // namespace lockstep::optim::internal
