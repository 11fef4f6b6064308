#include "lockstep/models/exported/graph_parser.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pt2/json_reader.h"
#include "lockstep/models/exported/node_parser.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::ParseJson;

constexpr int64_t kSchemaMajor = 8;
constexpr int64_t kTreeSpecVersion = 1;

absl::Status CheckVersion(const Json& program) {
  JsonReader json;
  const Json& version = json.Object(program, "schema_version");
  const int64_t major = json.Integer(version, "major"), minor = json.Integer(version, "minor");
  LOCKSTEP_RETURN_IF_ERROR(json.status());
  if (major == kSchemaMajor) return absl::OkStatus();
  const Json* torch = JsonReader::Find(program, "torch_version");
  return absl::UnimplementedError(
      absl::StrCat("its schema has version ", major, ".", minor, ", which PyTorch ",
                   torch && torch->is_string() ? torch->get<std::string>() : "of an unknown version",
                   " wrote; this reader knows major version ", kSchemaMajor, ": export it with PyTorch 2.11"));
}

// Sets the keys of a spec for a class of Python from its context, which is JSON in a JSON text. A class without a list
// of keys, one for each part, is a tuple.
void SetKeys(const Json& node, TreeSpec& spec) {
  const Json* context = JsonReader::Find(node, "context");
  if (!context || !context->is_string()) return;
  const absl::StatusOr<Json> parsed = ParseJson(context->get_ref<const std::string&>());
  if (!parsed.ok()) return;
  // A defaultdict's context begins with its factory.
  const Json* keys = &*parsed;
  const auto is_keys = [&](const Json& list) { return list.is_array() && list.size() == spec.children.size(); };
  if (!is_keys(*keys) && keys->is_object()) {
    for (const char* name : {"dict_context", "keys"}) {
      if (const Json* found = JsonReader::Find(*parsed, name)) keys = found;
    }
  }
  if (!is_keys(*keys)) return;
  std::vector<std::string> names;
  bool integers = !keys->empty();
  for (const Json& key : *keys) {
    if (key.is_string()) {
      integers = false;
      names.push_back(key.get<std::string>());
    } else if (key.is_number_integer()) {
      names.push_back(key.dump());
    } else {
      return;
    }
  }
  spec.kind = TreeSpec::Kind::kDict;
  spec.integer_keys = integers;
  spec.keys = std::move(names);
}

TreeSpec ParseTreeNode(JsonReader& json, const Json& node) {
  TreeSpec spec;
  if (!json.ok()) return spec;
  const Json& children = json.List(node, "children_spec");
  const Json* type = JsonReader::Find(node, "type");
  if (!type) {
    if (json.ok() && !children.empty()) json.Damaged("a leaf has children");
    return spec;
  }
  const std::string name = json.AsText(*type, "type");
  for (const Json& child : children) {
    if (!json.ok()) return spec;
    spec.children.push_back(ParseTreeNode(json, child));
  }
  spec.kind = name == "builtins.list" || name == "collections.deque" ? TreeSpec::Kind::kList : TreeSpec::Kind::kTuple;
  if (spec.kind == TreeSpec::Kind::kTuple && name != "builtins.tuple") SetKeys(node, spec);
  if (name == "builtins.dict" && spec.kind != TreeSpec::Kind::kDict) {
    json.Fail(absl::UnimplementedError("a dict whose keys are neither texts nor integers"));
  }
  return spec;
}

TreeSpec ParseTree(JsonReader& json, const Json& signature, const char* name) {
  TreeSpec spec;
  json.Within(name, [&] {
    const std::string text = json.Text(signature, name);
    if (!json.ok()) return;
    const absl::StatusOr<Json> parsed = ParseJson(text);
    if (!parsed.ok()) {
      json.Fail(parsed.status());
    } else if (!parsed->is_array() || parsed->size() != 2 || (*parsed)[0] != kTreeSpecVersion) {
      json.Fail(absl::UnimplementedError(absl::StrCat("a tree that is not of version ", kTreeSpecVersion)));
    } else {
      spec = ParseTreeNode(json, (*parsed)[1]);
    }
  });
  return spec;
}

const std::string* NameOf(const Graph& graph, const Argument& argument) {
  return argument.kind == Argument::Kind::kValue ? &graph.values[argument.value].name : nullptr;
}

InputSpec ParseInputSpec(JsonReader& json, const Json& source) {
  using Kind = InputSpec::Kind;
  InputSpec spec;
  if (!source.is_object() || source.size() != 1) {
    json.Damaged("an input of the signature is no object with one field");
    return spec;
  }
  const std::string& kind = source.begin().key();
  const Json& value = source.begin().value();
  if (kind == "parameter") {
    spec = {Kind::kParameter, json.Text(value, "parameter_name")};
  } else if (kind == "buffer") {
    spec = {Kind::kBuffer, json.Text(value, "buffer_name"), json.Bool(value, "persistent")};
  } else if (kind == "tensor_constant") {
    spec = {Kind::kTensorConstant, json.Text(value, "tensor_constant_name")};
  } else if (kind == "constant_input") {
    spec = {Kind::kConstantInput, json.Text(value, "name")};
  } else if (kind == "user_input") {
    spec = {Kind::kUserInput};
  } else {
    json.Fail(absl::UnimplementedError(absl::StrCat("an input of kind \"", kind, "\" is not supported")));
  }
  return spec;
}

OutputSpec ParseOutputSpec(JsonReader& json, const Json& source) {
  using Kind = OutputSpec::Kind;
  if (!source.is_object() || source.size() != 1) {
    json.Damaged("an output of the signature is no object with one field");
    return {};
  }
  const std::string& kind = source.begin().key();
  const Json& value = source.begin().value();
  if (kind == "user_output" || kind == "loss_output") return {Kind::kUserOutput};
  if (kind == "buffer_mutation") return {Kind::kBufferMutation, json.Text(value, "buffer_name")};
  if (kind == "parameter_mutation") return {Kind::kParameterMutation, json.Text(value, "parameter_name")};
  if (kind == "user_input_mutation") return {Kind::kUserInputMutation, json.Text(value, "user_input_name")};
  json.Fail(absl::UnimplementedError(
      absl::StrCat("an output of kind \"", kind, "\" is not supported: export the program without its backward")));
  return {};
}

// The name of the value to which an input or output of the signature refers; null if it refers to none.
const Json* ReferredName(const Json& spec) {
  if (!spec.is_object() || spec.size() != 1) return nullptr;
  const Json* argument = JsonReader::Find(spec.begin().value(), "arg");
  if (!argument) return nullptr;
  for (const char* kind : {"as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool", "as_custom_obj"}) {
    if (const Json* found = JsonReader::Find(*argument, kind)) argument = found;
  }
  const Json* name = JsonReader::Find(*argument, "name");
  return name ? name : JsonReader::Find(*argument, "as_name");
}

// Checks that the signature's and the graph's inputs, or outputs, are the same ones.
void CheckSame(JsonReader& json, const char* what, const Json& specs, const Graph& graph,
               const std::vector<Argument>& arguments) {
  if (!json.ok()) return;
  if (specs.size() != arguments.size()) {
    json.Damaged(absl::StrCat("the signature has ", specs.size(), " ", what, " and the graph ", arguments.size()));
    return;
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string* name = NameOf(graph, arguments[i]);
    const Json* referred = ReferredName(specs[i]);
    if (!name || !referred || *referred == *name) continue;
    json.Damaged(
        absl::StrCat(what, " ", i, " is \"", *name, "\" in the graph and ", referred->dump(), " in the signature"));
    return;
  }
}

void ParseSignature(JsonReader& json, const Json& signature, ExportedGraph& program) {
  const Json& inputs = json.List(signature, "input_specs");
  const Json& outputs = json.List(signature, "output_specs");
  CheckSame(json, "inputs", inputs, program.graph, program.graph.inputs);
  CheckSame(json, "outputs", outputs, program.graph, program.graph.outputs);
  for (const Json& input : inputs) {
    if (!json.ok()) return;
    program.inputs.push_back(ParseInputSpec(json, input));
    const InputSpec::Kind kind = program.inputs.back().kind;
    const Argument& argument = program.graph.inputs[program.inputs.size() - 1];
    const bool is_tensor = argument.kind == Argument::Kind::kValue && program.graph.values[argument.value].tensor;
    if (kind != InputSpec::Kind::kUserInput && kind != InputSpec::Kind::kConstantInput && !is_tensor) {
      json.Damaged(absl::StrCat("\"", program.inputs.back().target, "\" is no tensor of the graph"));
    }
  }
  for (const Json& output : outputs) {
    if (!json.ok()) return;
    program.outputs.push_back(ParseOutputSpec(json, output));
  }
}

void ParseCalls(JsonReader& json, const Json& calls, ExportedGraph& program) {
  if (!json.ok()) return;
  if (calls.empty()) {
    json.Damaged("module_call_graph is empty");
    return;
  }
  const Json& signature = json.Object(calls[0], "signature");
  program.arguments = ParseTree(json, signature, "in_spec");
  program.results = ParseTree(json, signature, "out_spec");
  if (!json.ok()) return;
  using Kind = TreeSpec::Kind;
  const std::vector<TreeSpec>& parts = program.arguments.children;
  if (program.arguments.kind != Kind::kTuple || parts.size() != 2 || parts[0].kind != Kind::kTuple ||
      (parts[1].kind != Kind::kDict && !parts[1].children.empty())) {
    json.Damaged("in_spec is not a tuple of positional arguments and keyword arguments");
  }
  if (JsonReader::Find(signature, "forward_arg_names")) {
    for (const Json& name : json.List(signature, "forward_arg_names")) {
      program.argument_names.push_back(json.AsText(name, "forward_arg_names"));
    }
  }
  for (size_t i = 1; i < calls.size() && json.ok(); ++i) program.modules.push_back(json.Text(calls[i], "fqn"));
}

void CheckTrees(JsonReader& json, const ExportedGraph& program) {
  int64_t inputs = 0, outputs = 0;
  for (const InputSpec& input : program.inputs) {
    inputs += input.kind == InputSpec::Kind::kUserInput || input.kind == InputSpec::Kind::kConstantInput;
  }
  for (const OutputSpec& output : program.outputs) outputs += output.kind == OutputSpec::Kind::kUserOutput;
  const auto check = [&](const char* what, int64_t leaves, int64_t found) {
    if (json.ok() && leaves != found) {
      json.Damaged(absl::StrCat("the structure of the ", what, " has ", leaves, " leaves, and the signature ", found));
    }
  };
  check("inputs", program.arguments.LeafCount(), inputs);
  check("outputs", program.results.LeafCount(), outputs);
}

std::vector<RangeConstraint> ParseRanges(JsonReader& json, const Json& ranges) {
  std::vector<RangeConstraint> parsed;
  for (const auto& [symbol, range] : ranges.items()) {
    RangeConstraint constraint{symbol};
    if (JsonReader::Find(range, "min_val")) constraint.min = json.Integer(range, "min_val");
    if (JsonReader::Find(range, "max_val")) constraint.max = json.Integer(range, "max_val");
    parsed.push_back(std::move(constraint));
  }
  return parsed;
}

}  // namespace

absl::StatusOr<ExportedGraph> ParseProgram(absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json source, ParseJson(text));
  LOCKSTEP_RETURN_IF_ERROR(CheckVersion(source));
  JsonReader json;
  ExportedGraph program;
  const Json& module = json.Object(source, "graph_module");
  program.torch_version = json.Text(source, "torch_version");
  program.graph = ParseGraph(json, json.Object(module, "graph"));
  ParseSignature(json, json.Object(module, "signature"), program);
  ParseCalls(json, json.List(module, "module_call_graph"), program);
  program.ranges = ParseRanges(json, json.Object(source, "range_constraints"));
  CheckTrees(json, program);
  LOCKSTEP_RETURN_IF_ERROR(json.status());
  return program;
}

}  // namespace lockstep::models::exported
