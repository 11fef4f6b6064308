#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sqrt.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/optim/internal/grouped.h"
#include "lockstep/optim/internal/program.h"

namespace lockstep::optim::internal {
namespace {

using Tasks = std::vector<Task*>;
using Tensors = std::vector<at::Tensor>;

// at::_foreach_add has one alpha for all tensors. The other operators take a scalar for each.
bool SameForeach(const Instruction& a, const Instruction& b) {
  return a.op == b.op && a.to == b.to && a.a == b.a && a.b == b.b && a.c == b.c &&
         (a.op != Op::kAdd || a.scalar == b.scalar);
}

bool Together(const Task* a, const Task* b) {
  const at::Tensor &p = a->registers[kParameter], &q = b->registers[kParameter];
  const auto &i = a->program.instructions(), &j = b->program.instructions();
  return p.device() == q.device() && p.scalar_type() == q.scalar_type() &&
         std::equal(i.begin(), i.end(), j.begin(), j.end(), SameForeach);
}

// The registers of all tasks, register by register.
std::vector<Tensors> Transposed(const Tasks& tasks) {
  std::vector<Tensors> registers(tasks.front()->program.registers());
  for (size_t i = 0; i < tasks.front()->registers.size(); ++i) {
    for (const Task* task : tasks) registers[i].push_back(task->registers[i]);
  }
  return registers;
}

Tensors Clones(const Tensors& tensors) {
  Tensors clones;
  for (const at::Tensor& tensor : tensors) clones.push_back(tensor.clone());
  return clones;
}

void Run(const Instruction& i, const std::vector<at::Scalar>& scalars, std::vector<Tensors>& registers) {
  const Tensors &a = registers[i.a], &b = registers[i.b], &c = registers[i.c];
  const bool in_place = i.to == i.a;
  const at::Scalar& scalar = scalars.front();
  const auto put = [&](Tensors made) { registers[i.to] = std::move(made); };
  switch (i.op) {
    case Op::kAsReal:
    case Op::kAsComplex:
      break;
    case Op::kNeg:
      return in_place ? at::_foreach_neg_(a) : put(at::_foreach_neg(a));
    case Op::kClone:
      return put(Clones(a));
    case Op::kMul:
      return in_place ? at::_foreach_mul_(a, b) : put(at::_foreach_mul(a, b));
    case Op::kMulScalar:
      return in_place ? at::_foreach_mul_(a, scalars) : put(at::_foreach_mul(a, scalars));
    case Op::kAdd:
      return in_place ? at::_foreach_add_(a, b, scalar) : put(at::_foreach_add(a, b, scalar));
    case Op::kAddScalar:
      return in_place ? at::_foreach_add_(a, scalars) : put(at::_foreach_add(a, scalars));
    case Op::kDiv:
      return in_place ? at::_foreach_div_(a, b) : put(at::_foreach_div(a, b));
    case Op::kDivScalar:
      return in_place ? at::_foreach_div_(a, scalars) : put(at::_foreach_div(a, scalars));
    case Op::kSqrt:
      return in_place ? at::_foreach_sqrt_(a) : put(at::_foreach_sqrt(a));
    case Op::kMaximum:
      return in_place ? at::_foreach_maximum_(a, b) : put(at::_foreach_maximum(a, b));
    case Op::kLerp:
      return in_place ? at::_foreach_lerp_(a, b, scalars) : put(at::_foreach_lerp(a, b, scalars));
    case Op::kAddcmul:
      return in_place ? at::_foreach_addcmul_(a, b, c, scalars) : put(at::_foreach_addcmul(a, b, c, scalars));
    case Op::kAddcdiv:
      return in_place ? at::_foreach_addcdiv_(a, b, c, scalars) : put(at::_foreach_addcdiv(a, b, c, scalars));
    case Op::kCopy:
      return at::_foreach_copy_(registers[i.to], a);
    case Op::kReciprocal:
      return in_place ? at::_foreach_reciprocal_(a) : put(at::_foreach_reciprocal(a));
    case Op::kAbs:
      return in_place ? at::_foreach_abs_(a) : put(at::_foreach_abs(a));
  }
}

void RunTogether(const Tasks& tasks) {
  std::vector<Tensors> registers = Transposed(tasks);
  const auto& instructions = tasks.front()->program.instructions();
  for (size_t i = 0; i < instructions.size(); ++i) {
    std::vector<at::Scalar> scalars;
    for (const Task* task : tasks) scalars.emplace_back(task->program.instructions()[i].scalar);
    Run(instructions[i], scalars, registers);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (size_t j = 0; j < tasks[i]->registers.size(); ++j) tasks[i]->registers[j] = registers[j][i];
  }
}

}  // namespace

void RunForeach(const std::vector<Task*>& tasks) {
  for (const Tasks& together : Grouped(tasks, Together)) RunTogether(together);
}

}  // namespace lockstep::optim::internal
