// Arguments of a program as IValues of the type that an operator's schema asks for.

#ifndef LOCKSTEP_MODELS_EXPORTED_OPERANDS_H_
#define LOCKSTEP_MODELS_EXPORTED_OPERANDS_H_

#include <ATen/core/jit_type_base.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "lockstep/models/exported/code.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// `argument` as an operand of type `type`. `list_size`: the length of a list of fixed size, for which one number may
// stand. `graph` has the values. Every device becomes `moved`, if it is set. DataLoss: the argument cannot have this
// type.
absl::StatusOr<Operand> MakeOperand(const Graph& graph, const Argument& argument, const c10::Type& type,
                                    std::optional<int32_t> list_size, std::optional<c10::Device> moved);

// `argument` as it is, for a graph's output or a higher-order operator.
absl::StatusOr<Operand> MakeUntypedOperand(const Argument& argument, std::optional<c10::Device> moved);

// Pushes the operand's value. Moves it out of the frame at its last use.
inline void Push(const Operand& operand, Frame& frame, torch::jit::Stack& stack);

void PushMade(const Operand& operand, Frame& frame, torch::jit::Stack& stack);

inline void Push(const Operand& operand, Frame& frame, torch::jit::Stack& stack) {
  if (operand.kind == Operand::Kind::kConstant) {
    stack.push_back(operand.constant);
  } else if (operand.kind == Operand::Kind::kSlot) {
    c10::IValue& value = frame[operand.slot];
    if (operand.last) {
      stack.push_back(std::move(value));
    } else {
      stack.push_back(value);
    }
  } else {
    PushMade(operand, frame, stack);
  }
}

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_OPERANDS_H_
