#include "lockstep/models/exported/modes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep::models::exported {
namespace {

// The input that is the training flag of an operator, by the operator's name without "torch.ops.aten." and overload.
absl::string_view FlagOf(absl::string_view name) {
  static const auto* const flags = new absl::flat_hash_map<absl::string_view, absl::string_view>{
      {"dropout", "train"},
      {"dropout_", "train"},
      {"feature_dropout", "train"},
      {"feature_dropout_", "train"},
      {"alpha_dropout", "train"},
      {"alpha_dropout_", "train"},
      {"native_dropout", "train"},
      {"feature_alpha_dropout", "train"},
      {"lstm", "train"},
      {"feature_alpha_dropout_", "train"},
      {"gru", "train"},
      {"rnn_tanh", "train"},
      {"rnn_relu", "train"},
      {"rrelu", "training"},
      {"rrelu_", "training"},
      {"batch_norm", "training"},
      {"instance_norm", "use_input_stats"},
  };
  const auto found = flags->find(name);
  return found == flags->end() ? absl::string_view() : found->second;
}

// Why an operator of this name cannot change its mode; empty if it can.
absl::string_view WhyFixed(absl::string_view name, bool train) {
  if (absl::StrContains(name, "native_batch_norm") || absl::StrContains(name, "batch_norm_with_update") ||
      absl::StrContains(name, "batch_norm_no_update")) {
    return "run_decompositions() has replaced its batch normalisation by one of a fixed mode";
  }
  if (!train && (name == "bernoulli" || name == "bernoulli_" || name == "rand")) {
    return "it drops at random, and no flag switches it off";
  }
  return {};
}

absl::string_view OperatorName(const Node& node) {
  absl::string_view name = node.target;
  if (!absl::ConsumePrefix(&name, "torch.ops.aten.")) return {};
  return name.substr(0, name.find('.'));
}

const Argument* FindInput(const Node& node, absl::string_view name) {
  for (const NamedArgument& input : node.inputs) {
    if (input.name == name) return &input.argument;
  }
  return nullptr;
}

int32_t OperandOf(const Instruction& instruction, absl::string_view name) {
  const auto& parameters = instruction.op->schema().arguments();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name() == name) return static_cast<int32_t>(i);
  }
  return -1;
}

class ModeFinder {
 public:
  explicit ModeFinder(const Program& program) {
    const ExportedGraph& graph = *program.graph;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.inputs[i].kind != InputSpec::Kind::kBuffer) continue;
      names_[graph.graph.inputs[i].value] = graph.inputs[i].target;
      buffers_[graph.inputs[i].target] = program.tensors[i];
    }
  }

  // `top`: the code is the program's, and not a body. Only there slots have the names of buffers.
  void Find(Code& code, bool top) {
    for (Instruction& instruction : code.instructions) {
      for (Code& body : instruction.bodies) Find(body, false);
      if (instruction.op) FindFlag(instruction, top);
    }
    if (!top) return;
    for (Instruction& instruction : code.instructions) FindCounter(instruction);
  }

  std::optional<bool> exported() const {
    if (trains_) return true;
    if (evaluates_) return false;
    return std::nullopt;
  }

 private:
  void FindFlag(Instruction& instruction, bool top) {
    const absl::string_view name = OperatorName(*instruction.node);
    Modes& modes = instruction.modes;
    if (name == "scaled_dot_product_attention") {
      modes.operand = OperandOf(instruction, "dropout_p");
      modes.exported = modes.in_train = instruction.operands[modes.operand].constant;
      modes.in_eval = 0.0;
      trains_ = trains_ || modes.exported.toDouble() > 0;
      return;
    }
    if (!WhyFixed(name, false).empty()) {
      const int32_t training = OperandOf(instruction, "training");
      const bool trains = training >= 0
                              ? instruction.operands[training].constant == c10::IValue(true)
                              : !absl::StrContains(name, "no_training") && !absl::StrContains(name, "no_update");
      (trains ? trains_ : evaluates_) = true;
    }
    const absl::string_view flag = FlagOf(name);
    if (flag.empty()) return;
    const int32_t operand = OperandOf(instruction, flag);
    if (operand < 0 || !instruction.operands[operand].constant.isBool()) return;
    if (absl::EndsWith(name, "_norm")) {
      // Without running statistics, both modes use the batch's.
      const Argument* mean = FindInput(*instruction.node, "running_mean");
      if (!mean || mean->kind != Argument::Kind::kValue) return;
      if (top) FindLayer(*mean, modes);
    }
    modes.operand = operand;
    modes.exported = instruction.operands[operand].constant;
    modes.in_train = true;
    modes.in_eval = false;
    (modes.exported.toBool() ? trains_ : evaluates_) = true;
  }

  // The layer of a running mean, which counts batches if it has a buffer for it.
  void FindLayer(const Argument& mean, Modes& modes) {
    const auto name = names_.find(mean.value);
    if (name == names_.end()) return;
    const std::string counter = absl::StrCat(absl::StripSuffix(name->second, "running_mean"), "num_batches_tracked");
    const auto found = buffers_.find(counter);
    if (found == buffers_.end()) return;
    modes.counter = found->second;
    counters_.push_back(counter);
  }

  // num_batches_tracked.add_(1)
  void FindCounter(Instruction& instruction) {
    if (OperatorName(*instruction.node) != "add_") return;
    const Argument* self = FindInput(*instruction.node, "self");
    if (!self || self->kind != Argument::Kind::kValue) return;
    const auto name = names_.find(self->value);
    if (name == names_.end()) return;
    instruction.modes.skip_in_eval = std::find(counters_.begin(), counters_.end(), name->second) != counters_.end();
  }

  absl::flat_hash_map<int32_t, std::string> names_;  // by the buffer's slot
  absl::flat_hash_map<std::string, at::Tensor> buffers_;
  std::vector<std::string> counters_;
  bool trains_ = false, evaluates_ = false;
};

absl::Status CheckInstruction(const Instruction& instruction, std::optional<bool> exported, bool train) {
  const absl::string_view name = OperatorName(*instruction.node);
  std::string why(WhyFixed(name, train));
  if (train && exported == false) {
    if (name == "scaled_dot_product_attention" && instruction.modes.exported.toDouble() == 0) {
      why = "evaluation mode does not record the probability of its dropout";
    } else if (instruction.modes.operand >= 0 && absl::EndsWith(name, "_norm")) {
      // momentum=None, an average over all batches, is 0 there.
      const c10::IValue& momentum = instruction.operands[OperandOf(instruction, "momentum")].constant;
      if (momentum.isDouble() && momentum.toDouble() == 0) why = "evaluation mode does not record its momentum";
    }
  }
  if (why.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the program cannot switch to ", train ? "training" : "evaluation", " mode at ", instruction.node->Place(), ": ",
      why, "; export the net in Python after net.", train ? "train()" : "eval()"));
}

void AddBatchNorms(const Graph& graph, const absl::flat_hash_map<int32_t, std::string>& buffers,
                   std::vector<std::string>& names) {
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) {
      if (input.argument.graph) AddBatchNorms(*input.argument.graph, {}, names);
    }
    if (!absl::StrContains(OperatorName(node), "batch_norm")) continue;
    const Argument* mean = FindInput(node, "running_mean");
    const auto buffer = buffers.find(mean ? mean->value : -1);
    std::string name = node.Place();
    if (buffer != buffers.end()) name = std::string(absl::StripSuffix(buffer->second, ".running_mean"));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
}

}  // namespace

std::vector<std::string> BatchNormsOf(const ExportedGraph& program) {
  absl::flat_hash_map<int32_t, std::string> buffers;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (program.inputs[i].kind == InputSpec::Kind::kBuffer)
      buffers[program.graph.inputs[i].value] = program.inputs[i].target;
  }
  std::vector<std::string> names;
  AddBatchNorms(program.graph, buffers, names);
  return names;
}

std::optional<bool> FindModes(const Program& program, Code& code) {
  ModeFinder finder(program);
  finder.Find(code, true);
  return finder.exported();
}

absl::Status CheckMode(const Code& code, std::optional<bool> exported, bool train) {
  if (exported == train) return absl::OkStatus();
  for (const Instruction& instruction : code.instructions) {
    for (const Code& body : instruction.bodies) {
      const absl::Status status = CheckMode(body, exported, train);
      if (!status.ok()) return status;
    }
    const absl::Status status = CheckInstruction(instruction, exported, train);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void SetMode(Code& code, std::optional<bool> exported, bool train) {
  for (Instruction& instruction : code.instructions) {
    for (Code& body : instruction.bodies) SetMode(body, exported, train);
    const Modes& modes = instruction.modes;
    if (modes.operand >= 0) {
      instruction.operands[modes.operand].constant = exported == train ? modes.exported
                                                     : train           ? modes.in_train
                                                                       : modes.in_eval;
    }
    instruction.skip = modes.skip_in_eval && !train;
    instruction.counter = exported == false && train ? modes.counter : at::Tensor();
  }
}

}  // namespace lockstep::models::exported
