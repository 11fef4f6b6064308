#include "lockstep/models/exported/structure.h"

#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::models::exported {
namespace {

using c10::IValue;
using Kind = TreeSpec::Kind;

absl::Status WrongStructure(const std::string& name, const std::string& expected, const IValue& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("input \"", name, "\" is ", found.tagKind(), ", and the program was exported with ", expected));
}

absl::Status Flatten(const TreeSpec& spec, const IValue& value, const std::string& name, std::vector<IValue>& leaves) {
  if (spec.kind == Kind::kLeaf) {
    leaves.push_back(value);
    return absl::OkStatus();
  }
  const size_t size = spec.children.size();
  if (spec.kind == Kind::kDict) {
    const std::string expected = absl::StrCat("a dict of ", absl::StrJoin(spec.keys, ", "));
    if (!value.isGenericDict()) return WrongStructure(name, expected, value);
    const c10::impl::GenericDict dict = value.toGenericDict();
    if (dict.size() != size) return WrongStructure(name, expected, value);
    for (size_t i = 0; i < size; ++i) {
      int64_t number = 0;
      if (spec.integer_keys && !absl::SimpleAtoi(spec.keys[i], &number)) return WrongStructure(name, expected, value);
      const auto found = dict.find(spec.integer_keys ? IValue(number) : IValue(spec.keys[i]));
      if (found == dict.end()) return WrongStructure(name, expected, value);
      LOCKSTEP_RETURN_IF_ERROR(
          Flatten(spec.children[i], found->value(), absl::StrCat(name, "[", spec.keys[i], "]"), leaves));
    }
    return absl::OkStatus();
  }
  std::vector<IValue> items;
  if (value.isTuple()) {
    items = value.toTupleRef().elements().vec();
  } else if (value.isList()) {
    items = value.toListRef().vec();
  } else {
    return WrongStructure(name, absl::StrCat("a sequence of ", size), value);
  }
  if (items.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("input \"", name, "\" has ", items.size(), " parts, and the program was exported with ", size));
  }
  for (size_t i = 0; i < size; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Flatten(spec.children[i], items[i], absl::StrCat(name, "[", i, "]"), leaves));
  }
  return absl::OkStatus();
}

// One argument of the Python function.
struct Parameter {
  const TreeSpec* spec;
  std::string name;
  std::optional<IValue> given = {};
};

std::vector<Parameter> ParametersOf(const ExportedGraph& program) {
  std::vector<Parameter> parameters;
  for (const TreeSpec& part : program.arguments.children) {
    for (size_t i = 0; i < part.children.size(); ++i) {
      const size_t at = parameters.size();
      std::string name = part.kind == Kind::kDict             ? part.keys[i]
                         : at < program.argument_names.size() ? program.argument_names[at]
                                                              : absl::StrCat(at);
      parameters.push_back({&part.children[i], std::move(name)});
    }
  }
  return parameters;
}

std::string NamesOf(const std::vector<Parameter>& parameters) {
  return absl::StrJoin(parameters, ", ", [](std::string* out, const Parameter& one) { *out += one.name; });
}

absl::Status TakeNamed(std::vector<std::pair<std::string, IValue>>& named, std::vector<Parameter>& parameters) {
  for (auto& [name, value] : named) {
    size_t at = 0;
    while (at < parameters.size() && parameters[at].name != name) ++at;
    if (at == parameters.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the program has no input \"", name, "\"; its inputs: ", NamesOf(parameters)));
    }
    if (parameters[at].given) return absl::InvalidArgumentError(absl::StrCat("input \"", name, "\" is given twice"));
    parameters[at].given = std::move(value);
  }
  return absl::OkStatus();
}

// The constant that the export recorded for a user input; nullopt if it is none.
std::optional<IValue> ConstantOf(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kNone:
      return IValue();
    case Argument::Kind::kBool:
      return IValue(argument.integer != 0);
    case Argument::Kind::kInt:
      return IValue(argument.integer);
    case Argument::Kind::kFloat:
      return IValue(argument.real);
    case Argument::Kind::kString:
      return IValue(argument.text);
    default:
      return std::nullopt;
  }
}

// The constants of the leaves of an argument that was left out.
absl::Status TakeConstants(const ExportedGraph& program, const std::vector<size_t>& user_inputs,
                           const std::vector<Parameter>& parameters, const Parameter& parameter,
                           std::vector<IValue>& leaves) {
  for (int64_t count = parameter.spec->LeafCount(); count > 0; --count) {
    const std::optional<IValue> constant = ConstantOf(program.graph.inputs[user_inputs[leaves.size()]]);
    if (!constant) {
      return absl::InvalidArgumentError(
          absl::StrCat("input \"", parameter.name, "\" is missing; the program's inputs: ", NamesOf(parameters)));
    }
    leaves.push_back(*constant);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<IValue>> FlattenInputs(const ExportedGraph& program, std::vector<IValue> inputs,
                                                  std::vector<std::pair<std::string, IValue>> named) {
  const auto is_leaf = [](const TreeSpec& spec) { return spec.kind == Kind::kLeaf; };
  const std::vector<TreeSpec>& positional = program.arguments.children[0].children;
  const bool complete = inputs.size() == positional.size() && program.arguments.children[1].children.empty();
  if (complete && named.empty() && std::all_of(positional.begin(), positional.end(), is_leaf)) return inputs;
  std::vector<Parameter> parameters = ParametersOf(program);
  if (inputs.size() > parameters.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(inputs.size(), " inputs for a program with ", parameters.size(), ": ", NamesOf(parameters)));
  }
  for (size_t i = 0; i < inputs.size(); ++i) parameters[i].given = std::move(inputs[i]);
  LOCKSTEP_RETURN_IF_ERROR(TakeNamed(named, parameters));
  std::vector<size_t> user_inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec::Kind kind = program.inputs[i].kind;
    if (kind == InputSpec::Kind::kUserInput || kind == InputSpec::Kind::kConstantInput) user_inputs.push_back(i);
  }
  std::vector<IValue> leaves;
  leaves.reserve(user_inputs.size());
  for (const Parameter& parameter : parameters) {
    if (parameter.given) {
      LOCKSTEP_RETURN_IF_ERROR(Flatten(*parameter.spec, *parameter.given, parameter.name, leaves));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(TakeConstants(program, user_inputs, parameters, parameter, leaves));
    }
  }
  return leaves;
}

IValue Unflatten(const TreeSpec& spec, const IValue*& leaf) {
  if (spec.kind == Kind::kLeaf) return *leaf++;
  std::vector<IValue> parts;
  parts.reserve(spec.children.size());
  bool tensors = true;
  for (const TreeSpec& child : spec.children) {
    parts.push_back(Unflatten(child, leaf));
    tensors = tensors && parts.back().isTensor();
  }
  if (spec.kind == Kind::kTuple) return c10::ivalue::Tuple::create(std::move(parts));
  if (spec.kind == Kind::kList) {
    const c10::TypePtr element = tensors ? c10::TypePtr(c10::TensorType::get()) : c10::TypePtr(c10::AnyType::get());
    c10::impl::GenericList list(element);
    for (IValue& part : parts) list.push_back(std::move(part));
    return list;
  }
  const c10::TypePtr key = spec.integer_keys ? c10::TypePtr(c10::IntType::get()) : c10::TypePtr(c10::StringType::get());
  c10::impl::GenericDict dict(key, c10::AnyType::get());
  for (size_t i = 0; i < parts.size(); ++i) {
    int64_t number = 0;
    const bool is_number = spec.integer_keys && absl::SimpleAtoi(spec.keys[i], &number);
    dict.insert(is_number ? IValue(number) : IValue(spec.keys[i]), std::move(parts[i]));
  }
  return dict;
}

}  // namespace lockstep::models::exported
