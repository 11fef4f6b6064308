#include "lockstep/models/exported/interpreter.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/exported/compiler.h"
#include "lockstep/models/exported/modes.h"
#include "lockstep/models/exported/run.h"
#include "lockstep/models/exported/structure.h"

namespace lockstep::models::exported {

absl::StatusOr<std::unique_ptr<Interpreter>> Interpreter::Create(std::shared_ptr<const Program> program) {
  LOCKSTEP_ASSIGN_OR_RETURN(Code code, Compile(program->graph->graph, program->device));
  std::unique_ptr<Interpreter> made(new Interpreter(std::move(program), std::move(code)));
  return made;
}

Interpreter::Interpreter(std::shared_ptr<const Program> program, Code code)
    : program_(std::move(program)), checks_(*program_->graph), code_(std::move(code)) {
  int32_t leaf = 0;
  for (const InputSpec& input : program_->graph->inputs) {
    const bool of_user = input.kind == InputSpec::Kind::kUserInput || input.kind == InputSpec::Kind::kConstantInput;
    leaves_.push_back(of_user ? leaf++ : -1);
  }
  exported_mode_ = FindModes(*program_, code_);
  FindAssignments();
}

// `self.mean = value` is a copy_ to the buffer at the end of the program, or an output after run_decompositions(). If
// nothing uses the buffer afterwards, the buffer can take new memory, as it does in Python, where the graph may still
// need the old value.
void Interpreter::FindAssignments() {
  assigned_.resize(code_.inputs.size(), false);
  for (const OutputSpec& output : program_->graph->outputs) {
    if (output.kind != OutputSpec::Kind::kBufferMutation) continue;
    for (size_t i = 0; i < code_.inputs.size(); ++i) {
      if (leaves_[i] < 0 && program_->graph->inputs[i].target == output.target) assigned_[i] = true;
    }
  }
  for (Instruction& instruction : code_.instructions) {
    const Node& node = *instruction.node;
    // The export itself names its copies so, and a copy_ of the program "copy_".
    if (node.target != "torch.ops.aten.copy_.default" || !absl::StartsWith(node.name, "copy__default")) continue;
    if (instruction.results[0] != -1) continue;
    const Operand &to = instruction.operands[0], &from = instruction.operands[1];
    if (to.kind != Operand::Kind::kSlot || !to.last || from.kind != Operand::Kind::kSlot) continue;
    for (size_t i = 0; i < code_.inputs.size(); ++i) {
      if (code_.inputs[i] != to.slot || program_->graph->inputs[i].kind != InputSpec::Kind::kBuffer) continue;
      instruction.assigned = program_->tensors[i];
      assigned_[i] = true;
    }
  }
}

c10::IValue Interpreter::Call(std::vector<c10::IValue> inputs, std::vector<std::pair<std::string, c10::IValue>> named) {
  absl::StatusOr<std::vector<c10::IValue>> flat = FlattenInputs(*program_->graph, std::move(inputs), std::move(named));
  ThrowIfError(flat.status());
  ThrowIfError(checks_.Check(*flat));
  torch::jit::Stack stack;
  stack.reserve(code_.inputs.size());
  for (size_t i = 0; i < code_.inputs.size(); ++i) {
    if (leaves_[i] >= 0) {
      stack.push_back((*flat)[leaves_[i]]);
    } else {
      // Graphs may save an alias of an assigned buffer, which keeps the old value.
      stack.emplace_back(assigned_[i] ? program_->tensors[i].detach() : program_->tensors[i]);
    }
  }
  Run(code_, stack);
  const std::vector<c10::IValue> results = TakeResults(std::move(stack), *flat);
  const c10::IValue* leaf = results.data();
  return Unflatten(program_->graph->results, leaf);
}

std::vector<c10::IValue> Interpreter::TakeResults(std::vector<c10::IValue> outputs,
                                                  const std::vector<c10::IValue>& leaves) const {
  using Kind = OutputSpec::Kind;
  const ExportedGraph& graph = *program_->graph;
  size_t kept = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputSpec& spec = graph.outputs[i];
    if (spec.kind == Kind::kUserOutput) {
      outputs[kept++] = outputs[i];
      continue;
    }
    const c10::NoGradGuard no_grad;
    for (size_t j = 0; j < graph.inputs.size(); ++j) {
      const bool of_user = spec.kind == Kind::kUserInputMutation;
      const Argument& input = graph.graph.inputs[j];
      if (of_user && leaves_[j] >= 0 && input.value >= 0 && graph.graph.values[input.value].name == spec.target) {
        leaves[leaves_[j]].toTensor().copy_(outputs[i].toTensor());
      } else if (!of_user && leaves_[j] < 0 && graph.inputs[j].target == spec.target) {
        if (assigned_[j]) {
          AssignBuffer(program_->tensors[j], outputs[i].toTensor());
        } else {
          program_->tensors[j].copy_(outputs[i].toTensor());
        }
      }
    }
  }
  outputs.resize(kept);
  return outputs;
}

absl::Status Interpreter::SetTraining(bool on) {
  LOCKSTEP_RETURN_IF_ERROR(CheckMode(code_, exported_mode_, on));
  SetMode(code_, exported_mode_, on);
  return absl::OkStatus();
}

}  // namespace lockstep::models::exported
