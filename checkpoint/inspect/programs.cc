#include "lockstep/checkpoint/inspect/programs.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pt2/archive.h"
#include "lockstep/checkpoint/pt2/json_reader.h"
#include "lockstep/checkpoint/pt2/payload.h"
#include "lockstep/checkpoint/pt2/tensors.h"
#include "lockstep/checkpoint/tensors/dtype.h"

namespace lockstep::checkpoint::inspect {
namespace {

using pt2::Extent;
using pt2::Json;
using pt2::JsonReader;
using pt2::Pt2Archive;
using pt2::StoredTensor;

Value DictOf(const std::vector<StoredTensor>& stored) {
  Value dict = Value::Dict();
  for (const StoredTensor& one : stored) dict.Set(one.payload.name, one.tensor);
  return dict;
}

std::string TextOf(const Extent& extent) {
  if (extent.number >= 0) return absl::StrCat(extent.number);
  return extent.symbol.empty() ? "?" : extent.symbol;
}

// "float32 [s77, 28]"
std::string TextOf(JsonReader& json, const Json& described) {
  const pt2::TensorMeta meta = pt2::ParseTensorMeta(json, described);
  const absl::StatusOr<c10::ScalarType> dtype = pt2::DtypeOfSchema(meta.dtype);
  const tensors::Dtype* const known = dtype.ok() ? tensors::FindDtype(*dtype) : nullptr;
  std::vector<std::string> sizes;
  for (const Extent& size : meta.sizes) sizes.push_back(TextOf(size));
  return absl::StrCat(known ? std::string(known->name) : absl::StrCat("dtype ", meta.dtype), " [",
                      absl::StrJoin(sizes, ", "), "]");
}

// The name of the value to which an argument of the schema refers; empty for a constant.
std::string NameIn(const Json& argument) {
  const bool is_union = argument.is_object() && argument.size() == 1 && argument.begin().value().is_object();
  const Json& holder = is_union ? argument.begin().value() : argument;
  for (const char* key : {"name", "as_name"}) {
    const Json* const name = JsonReader::Find(holder, key);
    if (name && name->is_string()) return name->get<std::string>();
  }
  return {};
}

// The inputs or outputs of a signature, by name. `values` are the graph's tensors.
Value Described(JsonReader& json, const Json& specs, const Json& values) {
  Value dict = Value::Dict();
  for (const Json& spec : specs) {
    if (!spec.is_object() || spec.size() != 1) {
      json.Damaged("an input or output of the signature is no object with one field");
      return dict;
    }
    const std::string& kind = spec.begin().key();
    const Json& content = spec.begin().value();
    const Json* const argument = JsonReader::Find(content, "arg");
    const std::string name = NameIn(argument ? *argument : content);
    const Json* const described = JsonReader::Find(values, name.c_str());
    std::string text = kind == "user_input" || kind == "user_output" ? "" : kind;
    for (const auto& [key, target] : content.items()) {
      if (absl::EndsWith(key, "_name") && target.is_string()) absl::StrAppend(&text, " ", target.get<std::string>());
    }
    if (text.empty()) text = described ? TextOf(json, *described) : argument ? argument->dump() : "";
    dict.Set(name.empty() ? absl::StrCat(dict.size()) : name, text);
  }
  return dict;
}

// Counts the operators of a graph, and of the bodies among its arguments.
void Count(const Json& part, std::map<std::string, int64_t>& counts) {
  if (part.is_object()) {
    const Json* const target = JsonReader::Find(part, "target");
    if (target && target->is_string() && JsonReader::Find(part, "inputs")) ++counts[target->get<std::string>()];
  }
  if (!part.is_structured()) return;
  for (const Json& child : part) Count(child, counts);
}

Value RangesOf(const Json& constraints) {
  Value dict = Value::Dict();
  for (const auto& [symbol, range] : constraints.items()) {
    const Json *const min = JsonReader::Find(range, "min_val"), *const max = JsonReader::Find(range, "max_val");
    dict.Set(symbol, absl::StrCat(min ? min->dump() : "any", " to ", max ? max->dump() : "any"));
  }
  return dict;
}

absl::StatusOr<Value> ParseProgram(const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Json program, pt2::ParseJson(text));
  JsonReader json;
  const Json& version = json.Object(program, "schema_version");
  const int64_t major = json.Integer(version, "major"), minor = json.Integer(version, "minor");
  const Json& module = json.Object(program, "graph_module");
  const Json& graph = json.Object(module, "graph");
  const Json& signature = json.Object(module, "signature");
  const Json& values = json.Object(graph, "tensor_values");
  std::map<std::string, int64_t> counts;
  Count(json.List(graph, "nodes"), counts);
  Value operators = Value::Dict();
  for (const auto& [name, count] : counts) operators.Set(name, count);
  Value parsed = Value::Dict({{"inputs", Described(json, json.List(signature, "input_specs"), values)},
                              {"outputs", Described(json, json.List(signature, "output_specs"), values)},
                              {"sizes", RangesOf(json.Object(program, "range_constraints"))},
                              {"operators", std::move(operators)},
                              {"torch_version", json.Text(program, "torch_version")},
                              {"schema_version", absl::StrCat(major, ".", minor)}});
  LOCKSTEP_RETURN_IF_ERROR(json.status());
  return parsed;
}

}  // namespace

absl::StatusOr<Value> ReadPrograms(const file::ByteSource& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Pt2Archive archive, Pt2Archive::Open(source, /*verify=*/true));
  LOCKSTEP_RETURN_IF_ERROR(archive.VerifyAll());
  Value programs = Value::Dict();
  for (const std::string& name : archive.programs()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<StoredTensor> weights, archive.Weights(name, at::kCPU));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<StoredTensor> constants, archive.Constants(name, at::kCPU));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, archive.Program(name));
    absl::StatusOr<Value> parsed = ParseProgram(text);
    if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("program \"", name, "\""));
    Value program = Value::Dict({{"state_dict", DictOf(weights)}, {"constants", DictOf(constants)}});
    for (const auto& [key, value] : parsed->entries()) program.Set(key.string_value(), value);
    programs.Set(name, std::move(program));
  }
  return programs;
}

}  // namespace lockstep::checkpoint::inspect
