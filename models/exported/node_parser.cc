#include "lockstep/models/exported/node_parser.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/checkpoint/pt2/payload.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::DeviceName;
using checkpoint::pt2::ParseDevice;
using checkpoint::pt2::ParseTensorMeta;
using Kind = Argument::Kind;

// The innermost frame of a Python traceback outside PyTorch's own files; the innermost if there is none.
std::string LineOf(absl::string_view traceback) {
  std::string own, any;
  const std::vector<absl::string_view> lines = absl::StrSplit(traceback, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::string_view frame = absl::StripAsciiWhitespace(lines[i]);
    if (!absl::ConsumePrefix(&frame, "File \"")) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(frame, absl::MaxSplits("\", line ", 1));
    if (parts.size() != 2) continue;
    const absl::string_view number = parts[1].substr(0, parts[1].find(','));
    any = absl::StrCat(parts[0], ":", number);
    const absl::string_view code = i + 1 < lines.size() ? absl::StripAsciiWhitespace(lines[i + 1]) : "";
    if (!code.empty() && !absl::StartsWith(code, "File \"")) absl::StrAppend(&any, ": ", code);
    const bool of_torch = absl::StrContains(parts[0], "/torch/") || absl::StartsWith(parts[0], "torch/");
    if (!of_torch) own = any;
  }
  return own.empty() ? any : own;
}

// A Node, in `values`.
Node ParseNode(JsonReader& json, const Json& source, ValueTable& values) {
  Node node;
  node.target = json.Text(source, "target");
  if (JsonReader::Find(source, "name")) node.name = json.Text(source, "name");
  if (const Json* metadata = JsonReader::Find(source, "metadata")) {
    if (JsonReader::Find(*metadata, "stack_trace")) node.line = LineOf(json.Text(*metadata, "stack_trace"));
  }
  json.Within(node.Place(), [&] {
    for (const Json& input : json.List(source, "inputs")) {
      if (!json.ok()) return;
      std::string name = json.Text(input, "name");
      json.Within(absl::StrCat("input \"", name, "\""), [&] {
        node.inputs.push_back({std::move(name), values.Use(json.Object(input, "arg"))});
      });
    }
    for (const Json& output : json.List(source, "outputs")) {
      if (!json.ok()) return;
      node.outputs.push_back(values.Define(output));
    }
  });
  return node;
}

}  // namespace

ValueTable::ValueTable(JsonReader& json, const Json& graph, Graph& into) : json_(json), graph_(into) {
  const Json& tensors = json.Object(graph, "tensor_values");
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) tensors_.emplace(tensor.key(), &*tensor);
}

Argument ValueTable::Use(const Json& argument) { return Parse(argument, false); }

Argument ValueTable::Define(const Json& argument) { return Parse(argument, true); }

Argument ValueTable::Named(const std::string& name, bool define) {
  if (!json_.ok()) return {};
  Argument argument;
  argument.kind = Kind::kValue;
  const auto found = values_.find(name);
  if (!define) {
    if (found == values_.end()) {
      json_.Damaged(absl::StrCat("value \"", name, "\" is used before anything computes it"));
      return {};
    }
    argument.value = found->second;
    return argument;
  }
  if (found != values_.end()) {
    json_.Damaged(absl::StrCat("value \"", name, "\" is computed twice"));
    return {};
  }
  argument.value = static_cast<int32_t>(graph_.values.size());
  values_.emplace(name, argument.value);
  Value value{name};
  if (const auto meta = tensors_.find(name); meta != tensors_.end()) {
    json_.Within(absl::StrCat("value \"", name, "\""), [&] { value.tensor = ParseTensorMeta(json_, *meta->second); });
  }
  graph_.values.push_back(std::move(value));
  return argument;
}

// A SymIntArgument, SymFloatArgument or SymBoolArgument.
Argument ValueTable::NamedOrNumber(const Json& argument, bool define) {
  if (JsonReader::Find(argument, "as_name")) return Named(json_.Text(argument, "as_name"), define);
  return Parse(argument, define);
}

Argument ValueTable::Scalar(const Json& value, absl::string_view kind) {
  Argument argument;
  if (kind == "as_int" || kind == "as_ints") {
    argument.kind = Kind::kInt;
    argument.integer = json_.AsInteger(value, kind);
  } else if (kind == "as_bool" || kind == "as_bools") {
    argument.kind = Kind::kBool;
    argument.integer = json_.AsBool(value, kind);
  } else if (kind == "as_float" || kind == "as_floats") {
    argument.kind = Kind::kFloat;
    argument.real = json_.AsDouble(value, kind);
  } else {
    argument.kind = kind == "as_operator" ? Kind::kOperator : Kind::kString;
    argument.text = json_.AsText(value, kind);
  }
  return argument;
}

Argument ValueTable::List(const Json& items, absl::string_view kind, bool define) {
  Argument list;
  list.kind = Kind::kList;
  if (!items.is_array()) {
    json_.Damaged(absl::StrCat(kind, " is no list"));
    return list;
  }
  list.items.reserve(items.size());
  for (const Json& item : items) {
    if (!json_.ok()) break;
    if (kind == "as_tensors") {
      list.items.push_back(Named(json_.Text(item, "name"), define));
    } else if (kind == "as_nested_tensors") {
      list.items.push_back(List(item, "as_tensors", define));
    } else if (kind == "as_int_lists") {
      list.items.push_back(List(item, "as_ints", define));
    } else if (kind == "as_optional_tensors") {
      list.items.push_back(Parse(item, define));
    } else if (absl::StartsWith(kind, "as_sym_")) {
      list.items.push_back(NamedOrNumber(item, define));
    } else {
      list.items.push_back(Scalar(item, kind));
    }
  }
  return list;
}

// An Argument, or another union of the schema: an object with one field, whose name says what it is.
Argument ValueTable::Parse(const Json& source, bool define) {
  if (!json_.ok()) return {};
  if (!source.is_object() || source.size() != 1) {
    json_.Damaged("an argument is no object with one field");
    return {};
  }
  const std::string& kind = source.begin().key();
  const Json& value = source.begin().value();
  Argument argument;
  if (kind == "as_none") return argument;
  if (kind == "as_tensor") return Named(json_.Text(value, "name"), define);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return NamedOrNumber(value, define);
  if (kind == "as_int" || kind == "as_bool" || kind == "as_float" || kind == "as_string" || kind == "as_operator") {
    return Scalar(value, kind);
  }
  if (kind == "as_optional_tensor") return Parse(value, define);
  if (kind == "as_scalar_type" || kind == "as_memory_format" || kind == "as_layout") {
    argument.kind = kind == "as_scalar_type" ? Kind::kDtype : kind == "as_layout" ? Kind::kLayout : Kind::kMemoryFormat;
    argument.integer = json_.AsInteger(value, kind);
  } else if (kind == "as_device") {
    const DeviceName device = ParseDevice(json_, value);
    argument.kind = Kind::kDevice;
    argument.text = device.type;
    argument.integer = device.index;
  } else if (kind == "as_complex") {
    argument.kind = Kind::kComplex;
    const Json *real = JsonReader::Find(value, "real"), *imaginary = JsonReader::Find(value, "imag");
    argument.real = json_.AsDouble(real ? *real : Json(), "real");
    argument.imaginary = json_.AsDouble(imaginary ? *imaginary : Json(), "imag");
  } else if (kind == "as_graph") {
    argument.kind = Kind::kGraph;
    argument.text = json_.Text(value, "name");
    argument.graph = std::make_shared<Graph>(ParseGraph(json_, json_.Object(value, "graph")));
  } else if (kind == "as_custom_obj") {
    argument.kind = Kind::kCustomObject;
    argument.text = json_.Text(value, "class_fqn");
  } else if (absl::EndsWith(kind, "s") && value.is_array()) {
    return List(value, kind, define);
  } else {
    json_.Fail(absl::UnimplementedError(absl::StrCat("an argument of kind \"", kind, "\" is not supported")));
  }
  return argument;
}

Graph ParseGraph(JsonReader& json, const Json& source) {
  Graph graph;
  ValueTable values(json, source, graph);
  for (const Json& input : json.List(source, "inputs")) {
    if (!json.ok()) return graph;
    graph.inputs.push_back(values.Define(input));
  }
  for (const Json& node : json.List(source, "nodes")) {
    if (!json.ok()) return graph;
    graph.nodes.push_back(ParseNode(json, node, values));
  }
  json.Within("an output of the graph", [&] {
    for (const Json& output : json.List(source, "outputs")) graph.outputs.push_back(values.Use(output));
  });
  return graph;
}

}  // namespace lockstep::models::exported
