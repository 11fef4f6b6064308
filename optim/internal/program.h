// A parameter's step as a list of elementwise instructions, written once for each optimizer and carried out in three
// ways: by ATen's operators, by at::_foreach_* over many tensors, or block by block in one pass over memory.

#ifndef LOCKSTEP_OPTIM_INTERNAL_PROGRAM_H_
#define LOCKSTEP_OPTIM_INTERNAL_PROGRAM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "lockstep/optim/internal/kernels.h"

namespace lockstep::optim::internal {

// A tensor of a program: the parameter, the gradient, the state's tensors from kState on, and then temporary ones.
using Register = int8_t;
inline constexpr Register kParameter = 0, kGradient = 1, kState = 2;

// to = op(a, b, c, scalar). Operators with fewer operands repeat `a`.
struct Instruction {
  Op op;
  Register to, a, b, c;
  double scalar;
};

// Each function appends an instruction that rounds as PyTorch's operator of that name. `to` may be an operand.
class Program {
 public:
  // `is_complex`: the parameter is.
  explicit Program(int state_tensors, bool is_complex = false)
      : registers_(kState + state_tensors), is_complex_(is_complex) {}

  Register Temporary() { return static_cast<Register>(registers_++); }

  // From here on complex numbers are pairs of real ones.
  void AsReal() {
    if (is_complex_) Append({Op::kAsReal, kParameter, kParameter, kParameter, kParameter, 0});
  }
  void Neg(Register to, Register a) { Append({Op::kNeg, to, a, a, a, 0}); }
  // A copy with the strides of `a`. It is the only instruction that may define a tensor of the state.
  void Clone(Register to, Register a) { Append({Op::kClone, to, a, a, a, 0}); }
  void Mul(Register to, Register a, Register b) { Append({Op::kMul, to, a, b, a, 0}); }
  void Mul(Register to, Register a, double scalar) { Append({Op::kMulScalar, to, a, a, a, scalar}); }
  // a + alpha * b
  void Add(Register to, Register a, Register b, double alpha = 1) { Append({Op::kAdd, to, a, b, a, alpha}); }
  void AddScalar(Register to, Register a, double scalar) { Append({Op::kAddScalar, to, a, a, a, scalar}); }
  void Div(Register to, Register a, Register b) { Append({Op::kDiv, to, a, b, a, 0}); }
  void Div(Register to, Register a, double scalar) { Append({Op::kDivScalar, to, a, a, a, scalar}); }
  // `to` must be temporary.
  void Sqrt(Register to, Register a) { Append({Op::kSqrt, to, a, a, a, 0}); }
  void Maximum(Register to, Register a, Register b) { Append({Op::kMaximum, to, a, b, a, 0}); }
  // a + weight * (b - a)
  void Lerp(Register to, Register a, Register b, double weight) { Append({Op::kLerp, to, a, b, a, weight}); }
  // a + value * b * c
  void Addcmul(Register to, Register a, Register b, Register c, double value) {
    Append({Op::kAddcmul, to, a, b, c, value});
  }
  // a + value * b / c
  void Addcdiv(Register to, Register a, Register b, Register c, double value) {
    Append({Op::kAddcdiv, to, a, b, c, value});
  }
  // The gradient, negated if `maximize`, plus `weight_decay` times the parameter. Returns its register: kGradient, or `to`
  // if they differ.
  Register Gradient(Register to, bool maximize, double weight_decay) {
    if (maximize) Neg(to, kGradient);
    if (weight_decay != 0) Add(to, maximize ? to : kGradient, kParameter, weight_decay);
    return maximize || weight_decay != 0 ? to : kGradient;
  }
  void Abs(Register to, Register a) { Append({Op::kAbs, to, a, a, a, 0}); }
  void Reciprocal(Register to, Register a) { Append({Op::kReciprocal, to, a, a, a, 0}); }
  // Fills `to`, which must be a tensor of the state.
  void Copy(Register to, Register a) { Append({Op::kCopy, to, a, a, a, 0}); }
  // After AsReal(): pairs of real numbers in this register are complex numbers again.
  void AsComplex(Register to) {
    if (is_complex_) Append({Op::kAsComplex, to, to, to, to, 0});
  }

  int registers() const { return registers_; }
  const absl::InlinedVector<Instruction, 12>& instructions() const { return instructions_; }

 private:
  void Append(const Instruction& instruction) { instructions_.push_back(instruction); }

  int registers_;
  bool is_complex_;
  absl::InlinedVector<Instruction, 12> instructions_;
};

// A program and the tensors of its registers: the parameter, the gradient, and the state. Temporary ones are made by
// RunAten() and RunForeach().
struct Task {
  Program program;
  std::vector<at::Tensor> registers;
};

// Views complex tensors as real ones with a last dimension of 2.
void AsReal(std::vector<at::Tensor>& registers);

// ATen's operators, tensor by tensor: any device, dtype and layout.
void RunAten(Task& task);

// One call of at::_foreach_* for each instruction and all tasks of one device, dtype and list of operators.
// On CPUs it rounds reduced-precision floats otherwise than RunAten().
void RunForeach(const std::vector<Task*>& tasks);

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_PROGRAM_H_
