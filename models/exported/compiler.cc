#include "lockstep/models/exported/compiler.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/models/exported/number_functions.h"
#include "lockstep/models/exported/operands.h"
#include "lockstep/models/exported/regions.h"

namespace lockstep::models::exported {
namespace {

using Kind = Argument::Kind;
using Device = std::optional<c10::Device>;

absl::StatusOr<c10::OperatorHandle> FindOperator(absl::string_view target) {
  absl::string_view name = target;
  if (!absl::ConsumePrefix(&name, "torch.ops.")) {
    return absl::UnimplementedError("it is neither an operator nor a function on sizes that is supported");
  }
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (parts.size() != 3) return absl::DataLossError("its target is not torch.ops.NAMESPACE.NAME.OVERLOAD");
  const c10::OperatorName wanted(absl::StrCat(parts[0], "::", parts[1]), parts[2] == "default" ? "" : parts[2]);
  const std::optional<c10::OperatorHandle> found = c10::Dispatcher::singleton().findSchema(wanted);
  if (found) return *found;
  return absl::UnimplementedError(absl::StrCat("no operator ", wanted.name,
                                               " is registered in this process: link the library that has it, or open "
                                               "it by dlopen before this file"));
}

// The operands of an operator in the order of its schema, with its defaults.
absl::Status MakeOperands(const Graph& graph, const Node& node, const c10::FunctionSchema& schema, Device device,
                          Instruction& instruction) {
  std::vector<bool> used(node.inputs.size(), false);
  for (const c10::Argument& parameter : schema.arguments()) {
    size_t at = 0;
    while (at < node.inputs.size() && node.inputs[at].name != parameter.name()) ++at;
    if (at == node.inputs.size()) {
      if (!parameter.default_value()) {
        return absl::DataLossError(absl::StrCat("its input \"", parameter.name(), "\" is missing"));
      }
      instruction.operands.emplace_back().constant = *parameter.default_value();
      continue;
    }
    used[at] = true;
    absl::StatusOr<Operand> operand =
        MakeOperand(graph, node.inputs[at].argument, *parameter.type(), parameter.N(), device);
    if (!operand.ok()) return Annotate(operand.status(), absl::StrCat("input \"", parameter.name(), "\""));
    instruction.operands.push_back(*std::move(operand));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    const std::string& name = node.inputs[i].name;
    const bool known = schema.argumentIndexWithName(name).has_value();
    return absl::DataLossError(known ? absl::StrCat("its input \"", name, "\" is given twice")
                                     : absl::StrCat("its operator has no input \"", name, "\""));
  }
  return absl::OkStatus();
}

absl::Status MakeResults(const Node& node, Instruction& instruction) {
  for (const Argument& output : node.outputs) {
    if (output.kind == Kind::kValue) {
      instruction.results.push_back(output.value);
    } else if (output.kind == Kind::kNone) {
      instruction.results.push_back(-1);
    } else if (output.kind == Kind::kList) {
      std::vector<int32_t>& slots = instruction.lists.emplace_back();
      for (const Argument& item : output.items) slots.push_back(item.value);
      instruction.results.push_back(kListResult);
    } else {
      return absl::DataLossError("an output is neither a value nor a list of values");
    }
  }
  return absl::OkStatus();
}

absl::Status MakeOperatorCall(const Graph& graph, const Node& node, Device device, Instruction& instruction) {
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::OperatorHandle op, FindOperator(node.target));
  const c10::FunctionSchema& schema = op.schema();
  if (node.outputs.size() != schema.returns().size()) {
    return absl::DataLossError(
        absl::StrCat("it has ", node.outputs.size(), " outputs, and its operator ", schema.returns().size()));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const bool list = schema.returns()[i].type()->kind() == c10::TypeKind::ListType;
    if (list != (node.outputs[i].kind == Kind::kList)) {
      return absl::DataLossError(
          absl::StrCat("output ", i, " does not have the type ", schema.returns()[i].type()->str()));
    }
  }
  instruction.op = op;
  return MakeOperands(graph, node, schema, device, instruction);
}

// A higher-order operator: its graphs become bodies, its lists of operands are flattened.
absl::Status MakeRegion(const Node& node, Device device, Instruction& instruction) {
  const auto add = [&](const Argument& argument) -> absl::Status {
    if (argument.kind == Kind::kGraph) {
      LOCKSTEP_ASSIGN_OR_RETURN(Code body, Compile(*argument.graph, device));
      instruction.bodies.push_back(std::move(body));
      return absl::OkStatus();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(Operand operand, MakeUntypedOperand(argument, device));
    instruction.operands.push_back(std::move(operand));
    return absl::OkStatus();
  };
  std::vector<int64_t> list_sizes;
  for (const NamedArgument& input : node.inputs) {
    if (!input.name.empty()) {
      // Options of the Python function, such as use_reentrant.
      if (input.argument.kind != Kind::kValue && input.argument.kind != Kind::kList) continue;
      return absl::UnimplementedError(absl::StrCat("its keyword argument \"", input.name, "\" is not supported"));
    }
    if (input.argument.kind == Kind::kList) {
      list_sizes.push_back(static_cast<int64_t>(input.argument.items.size()));
      for (const Argument& item : input.argument.items) LOCKSTEP_RETURN_IF_ERROR(add(item));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(add(input.argument));
    }
  }
  if (!list_sizes.empty()) instruction.mapped = list_sizes[0];
  LOCKSTEP_ASSIGN_OR_RETURN(instruction.region, FindRegion(node.target, list_sizes, instruction));
  return absl::OkStatus();
}

absl::StatusOr<Instruction> MakeInstruction(const Graph& graph, const Node& node, Device device) {
  Instruction instruction;
  instruction.node = &node;
  if (absl::StartsWith(node.target, "torch.ops.higher_order.")) {
    LOCKSTEP_RETURN_IF_ERROR(MakeRegion(node, device, instruction));
  } else if (const NumberCall call = FindNumberFunction(node.target); call.function) {
    instruction.number = call.function;
    for (const NamedArgument& input : node.inputs) {
      LOCKSTEP_ASSIGN_OR_RETURN(Operand operand, MakeUntypedOperand(input.argument, device));
      instruction.operands.push_back(std::move(operand));
    }
    if (call.operands != static_cast<int>(instruction.operands.size()) || node.outputs.size() != 1) {
      return absl::DataLossError(absl::StrCat("it does not have ", call.operands, " inputs and one output"));
    }
  } else {
    LOCKSTEP_RETURN_IF_ERROR(MakeOperatorCall(graph, node, device, instruction));
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeResults(node, instruction));
  return instruction;
}

// Marks the last use of each slot, from the end to the beginning.
class LastUses {
 public:
  explicit LastUses(size_t slots) : used_(slots, false) {}

  void Mark(Operand& operand) {
    for (auto item = operand.items.rbegin(); item != operand.items.rend(); ++item) Mark(*item);
    if (operand.slot < 0) return;
    operand.last = !used_[operand.slot];
    used_[operand.slot] = true;
  }

  void Mark(std::vector<Operand>& operands) {
    for (auto operand = operands.rbegin(); operand != operands.rend(); ++operand) Mark(*operand);
  }

  // Drops results that nothing uses.
  void Drop(std::vector<int32_t>& slots) const {
    for (int32_t& slot : slots) {
      if (slot >= 0 && !used_[slot]) slot = -1;
    }
  }

 private:
  std::vector<bool> used_;
};

}  // namespace

absl::StatusOr<Code> Compile(const Graph& graph, Device device) {
  Code code;
  code.slots = graph.values.size();
  for (const Argument& input : graph.inputs) code.inputs.push_back(input.kind == Kind::kValue ? input.value : -1);
  for (const Node& node : graph.nodes) {
    absl::StatusOr<Instruction> instruction = MakeInstruction(graph, node, device);
    if (!instruction.ok()) return Annotate(instruction.status(), node.Place());
    code.instructions.push_back(*std::move(instruction));
  }
  for (const Argument& output : graph.outputs) {
    absl::StatusOr<Operand> operand = MakeUntypedOperand(output, device);
    if (!operand.ok()) return Annotate(operand.status(), "an output of the graph");
    code.outputs.push_back(*std::move(operand));
  }
  LastUses uses(code.slots);
  uses.Mark(code.outputs);
  for (auto instruction = code.instructions.rbegin(); instruction != code.instructions.rend(); ++instruction) {
    uses.Drop(instruction->results);
    for (std::vector<int32_t>& list : instruction->lists) uses.Drop(list);
    uses.Mark(instruction->operands);
  }
  uses.Drop(code.inputs);
  return code;
}

}  // namespace lockstep::models::exported
