#include "lockstep/models/exported/run.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/models/exported/operands.h"

namespace lockstep::models::exported {
namespace {

using torch::jit::Stack;

void StoreLists(const Instruction& instruction, Stack& stack, Frame& frame) {
  auto list = instruction.lists.begin();
  for (size_t i = 0; i < instruction.results.size(); ++i) {
    const int32_t slot = instruction.results[i];
    if (slot >= 0) frame[slot] = std::move(stack[i]);
    if (slot != kListResult) continue;
    const std::vector<int32_t>& slots = *list++;
    const c10::List<at::Tensor> tensors = std::move(stack[i]).toTensorList();
    TORCH_CHECK(tensors.size() == slots.size(), "the operator returned ", tensors.size(),
                " tensors, and the program has ", slots.size());
    for (size_t j = 0; j < slots.size(); ++j) {
      if (slots[j] >= 0) frame[slots[j]] = tensors.get(j);
    }
  }
}

void RunOne(const Instruction& instruction, Stack& stack, Frame& frame) {
  stack.clear();
  for (const Operand& operand : instruction.operands) Push(operand, frame, stack);
  if (instruction.op) {
    instruction.op->callBoxed(stack);
  } else if (instruction.number) {
    instruction.number(stack);
  } else {
    instruction.region(instruction, stack);
  }
  if (instruction.results.size() == 1 && instruction.lists.empty()) {
    if (instruction.results[0] >= 0) frame[instruction.results[0]] = std::move(stack[0]);
  } else {
    StoreLists(instruction, stack, frame);
  }
}

}  // namespace

void AssignBuffer(const at::Tensor& buffer, const at::Tensor& value) {
  const c10::NoGradGuard no_grad;
  const at::Tensor data = at::empty_like(buffer).copy_(value);
  buffer.set_data(data);
  torch::autograd::impl::set_version_counter(buffer, torch::autograd::impl::version_counter(data));
}

void Run(const Code& code, Stack& stack) {
  Frame frame(code.slots);
  for (size_t i = 0; i < code.inputs.size(); ++i) {
    if (code.inputs[i] >= 0) frame[code.inputs[i]] = std::move(stack[i]);
  }
  Stack working;
  working.reserve(16);
  const Instruction* running = nullptr;
  try {
    for (const Instruction& instruction : code.instructions) {
      running = &instruction;
      if (instruction.skip) continue;
      if (instruction.counter.defined()) instruction.counter.add_(1);
      if (instruction.assigned.defined()) {
        AssignBuffer(instruction.assigned, frame[instruction.operands[1].slot].toTensor());
      } else {
        RunOne(instruction, working, frame);
      }
    }
  } catch (c10::Error& error) {
    error.add_context(absl::StrCat("in ", running->node->Place()));
    throw;
  }
  stack.clear();
  for (const Operand& output : code.outputs) Push(output, frame, stack);
}

}  // namespace lockstep::models::exported
