#include "lockstep/models/exported/number_functions.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/strip.h"

namespace lockstep::models::exported {
namespace {

using c10::IValue;
using torch::jit::Stack;

bool IsInteger(const IValue& value) { return value.isInt() || value.isBool(); }

int64_t Integer(const IValue& value) { return value.isBool() ? value.toBool() : value.toInt(); }

double Real(const IValue& value) { return value.isDouble() ? value.toDouble() : static_cast<double>(Integer(value)); }

int64_t FloorDivide(int64_t a, int64_t b) {
  TORCH_CHECK(b != 0 && (b != -1 || a != INT64_MIN), "division of ", a, " by ", b);
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)));
}

struct Add {
  static bool Of(int64_t a, int64_t b, int64_t* out) { return !__builtin_add_overflow(a, b, out); }
  static double Of(double a, double b) { return a + b; }
};
struct Subtract {
  static bool Of(int64_t a, int64_t b, int64_t* out) { return !__builtin_sub_overflow(a, b, out); }
  static double Of(double a, double b) { return a - b; }
};
struct Multiply {
  static bool Of(int64_t a, int64_t b, int64_t* out) { return !__builtin_mul_overflow(a, b, out); }
  static double Of(double a, double b) { return a * b; }
};
struct FloorDiv {
  static bool Of(int64_t a, int64_t b, int64_t* out) {
    *out = FloorDivide(a, b);
    return true;
  }
  static double Of(double a, double b) { return std::floor(a / b); }
};
struct Modulo {
  static bool Of(int64_t a, int64_t b, int64_t* out) {
    *out = a - FloorDivide(a, b) * b;
    return true;
  }
  static double Of(double a, double b) { return a - std::floor(a / b) * b; }
};
struct Power {
  static bool Of(int64_t a, int64_t b, int64_t* out) {
    TORCH_CHECK(b >= 0, "a negative power of an integer");
    *out = 1;
    for (; b > 0; --b) {
      if (__builtin_mul_overflow(*out, a, out)) return false;
      if (*out == 0 || *out == 1) break;
    }
    return true;
  }
  static double Of(double a, double b) { return std::pow(a, b); }
};
struct Maximum {
  static bool Of(int64_t a, int64_t b, int64_t* out) {
    *out = a > b ? a : b;
    return true;
  }
  static double Of(double a, double b) { return a > b ? a : b; }
};
struct Minimum {
  static bool Of(int64_t a, int64_t b, int64_t* out) {
    *out = a < b ? a : b;
    return true;
  }
  static double Of(double a, double b) { return a < b ? a : b; }
};

template <typename F>
void Arithmetic(Stack& stack) {
  const IValue b = torch::jit::pop(stack), a = torch::jit::pop(stack);
  if (IsInteger(a) && IsInteger(b)) {
    int64_t result = 0;
    TORCH_CHECK(F::Of(Integer(a), Integer(b), &result), "the result does not fit into 64 bits");
    stack.emplace_back(result);
  } else {
    stack.emplace_back(F::Of(Real(a), Real(b)));
  }
}

enum class Relation { kEqual, kUnequal, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

template <typename T>
bool Holds(Relation relation, T a, T b) {
  switch (relation) {
    case Relation::kEqual:
      return a == b;
    case Relation::kUnequal:
      return a != b;
    case Relation::kLess:
      return a < b;
    case Relation::kLessOrEqual:
      return a <= b;
    case Relation::kGreater:
      return a > b;
    case Relation::kGreaterOrEqual:
      return a >= b;
  }
  return false;
}

template <Relation relation>
void Compare(Stack& stack) {
  const IValue b = torch::jit::pop(stack), a = torch::jit::pop(stack);
  const bool integers = IsInteger(a) && IsInteger(b);
  stack.emplace_back(integers ? Holds(relation, Integer(a), Integer(b)) : Holds(relation, Real(a), Real(b)));
}

void TrueDivide(Stack& stack) {
  const IValue b = torch::jit::pop(stack), a = torch::jit::pop(stack);
  TORCH_CHECK(Real(b) != 0, "division by zero");
  stack.emplace_back(Real(a) / Real(b));
}

template <bool conjunction>
void Logical(Stack& stack) {
  const IValue b = torch::jit::pop(stack), a = torch::jit::pop(stack);
  if (a.isBool() && b.isBool()) {
    stack.emplace_back(conjunction ? a.toBool() && b.toBool() : a.toBool() || b.toBool());
  } else {
    stack.emplace_back(conjunction ? Integer(a) & Integer(b) : Integer(a) | Integer(b));
  }
}

template <bool left>
void Shift(Stack& stack) {
  const int64_t b = Integer(torch::jit::pop(stack)), a = Integer(torch::jit::pop(stack));
  TORCH_CHECK(a >= 0 && b >= 0 && b < 63, "a shift of ", a, " by ", b);
  const int64_t result = left ? static_cast<int64_t>(static_cast<uint64_t>(a) << b) : a >> b;
  TORCH_CHECK(!left || (result >= 0 && result >> b == a), "the result does not fit into 64 bits");
  stack.emplace_back(result);
}

void Negate(Stack& stack) {
  const IValue a = torch::jit::pop(stack);
  TORCH_CHECK(!IsInteger(a) || Integer(a) != INT64_MIN, "the result does not fit into 64 bits");
  stack.push_back(IsInteger(a) ? IValue(-Integer(a)) : IValue(-Real(a)));
}

void Same(Stack&) {}

void Truncate(Stack& stack) {
  const IValue a = torch::jit::pop(stack);
  stack.emplace_back(IsInteger(a) ? Integer(a) : static_cast<int64_t>(std::trunc(Real(a))));
}

void ToReal(Stack& stack) { stack.emplace_back(Real(torch::jit::pop(stack))); }

void Not(Stack& stack) { stack.emplace_back(!torch::jit::pop(stack).toBool()); }

void SquareRoot(Stack& stack) { stack.emplace_back(std::sqrt(Real(torch::jit::pop(stack)))); }

void IfThenElse(Stack& stack) {
  IValue no = torch::jit::pop(stack), yes = torch::jit::pop(stack);
  const bool condition = torch::jit::pop(stack).toBool();
  stack.push_back(condition ? std::move(yes) : std::move(no));
}

}  // namespace

NumberCall FindNumberFunction(absl::string_view target) {
  static const auto* const functions = new absl::flat_hash_map<absl::string_view, NumberCall>{
      {"_operator.add", {Arithmetic<Add>, 2}},
      {"_operator.sub", {Arithmetic<Subtract>, 2}},
      {"_operator.mul", {Arithmetic<Multiply>, 2}},
      {"_operator.floordiv", {Arithmetic<FloorDiv>, 2}},
      {"_operator.mod", {Arithmetic<Modulo>, 2}},
      {"_operator.pow", {Arithmetic<Power>, 2}},
      {"_operator.truediv", {TrueDivide, 2}},
      {"_operator.eq", {Compare<Relation::kEqual>, 2}},
      {"_operator.ne", {Compare<Relation::kUnequal>, 2}},
      {"_operator.lt", {Compare<Relation::kLess>, 2}},
      {"_operator.le", {Compare<Relation::kLessOrEqual>, 2}},
      {"_operator.gt", {Compare<Relation::kGreater>, 2}},
      {"_operator.ge", {Compare<Relation::kGreaterOrEqual>, 2}},
      {"_operator.and_", {Logical<true>, 2}},
      {"_operator.or_", {Logical<false>, 2}},
      {"_operator.lshift", {Shift<true>, 2}},
      {"_operator.rshift", {Shift<false>, 2}},
      {"_operator.neg", {Negate, 1}},
      {"_operator.pos", {Same, 1}},
      {"math.trunc", {Truncate, 1}},
      {"torch.sym_int", {Truncate, 1}},
      {"torch.sym_float", {ToReal, 1}},
      {"torch.sym_not", {Not, 1}},
      {"torch.sym_max", {Arithmetic<Maximum>, 2}},
      {"torch.sym_min", {Arithmetic<Minimum>, 2}},
      {"torch._sym_sqrt", {SquareRoot, 1}},
      {"torch.sym_sqrt", {SquareRoot, 1}},
      {"torch.sym_ite", {IfThenElse, 3}},
  };
  const auto found = functions->find(target);
  return found == functions->end() ? NumberCall{} : found->second;
}

}  // namespace lockstep::models::exported
