// A graph that is ready to run: nodes as operators of the dispatcher, values as slots of a frame.

#ifndef LOCKSTEP_MODELS_EXPORTED_CODE_H_
#define LOCKSTEP_MODELS_EXPORTED_CODE_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

// The values of one run, by slot.
using Frame = std::vector<c10::IValue>;

// One argument of an instruction.
struct Operand {
  enum class Kind : uint8_t {
    kConstant,
    kSlot,
    kTensorOfNumber,  // the number in a slot, as Python passes a number where a tensor is expected
    kDoubleOfNumber,  // the number in a slot, which may be an integer
    kIntList,         // of `items`, each a constant or a slot
    kTensorList,
    kOptionalTensorList,
  };
  Kind kind = Kind::kConstant;
  bool last = false;  // true if nothing uses the slot afterwards
  int32_t slot = -1;
  c10::IValue constant = {};
  std::vector<Operand> items = {};
};

struct Code;
struct Instruction;

// Runs the body of a higher-order operator. `stack` has the operands, and gets the results.
using Region = void (*)(const Instruction&, torch::jit::Stack& stack);

// Replaces the operands on the stack by the result. Throws c10::Error.
using NumberFunction = void (*)(torch::jit::Stack& stack);

// How train() and eval() change an instruction.
struct Modes {
  int32_t operand = -1;  // -1: no operand changes
  c10::IValue exported = {};
  c10::IValue in_train = {};
  c10::IValue in_eval = {};
  bool skip_in_eval = false;  // true if the instruction counts batches
  at::Tensor counter = {};    // the counter of batches of a normalisation
};

struct Instruction {
  // One of these three is set.
  std::optional<c10::OperatorHandle> op = {};
  NumberFunction number = nullptr;
  Region region = nullptr;

  std::vector<Operand> operands = {};
  // The slot of each result; -1 drops it. A result that is a list has its slots in `lists`, in the order of results.
  std::vector<int32_t> results = {};
  std::vector<std::vector<int32_t>> lists = {};
  std::vector<Code> bodies = {};
  int64_t mapped = 0;  // of map_impl: the number of operands that are cut into rows
  Modes modes = {};
  bool skip = false;
  // If defined, it grows by 1 before the instruction: the program was exported in evaluation mode, and trains.
  at::Tensor counter = {};
  // The buffer that the instruction, a copy_, assigns as the last use of it; undefined for other instructions.
  at::Tensor assigned = {};
  const Node* node = nullptr;
};

constexpr int32_t kListResult = -2;

struct Code {
  size_t slots = 0;
  std::vector<int32_t> inputs;  // the slot of each input; -1 drops it
  std::vector<Instruction> instructions;
  std::vector<Operand> outputs;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_CODE_H_
