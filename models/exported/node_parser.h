// Parses the graphs of a program: nodes, arguments and values. Pure.

#ifndef LOCKSTEP_MODELS_EXPORTED_NODE_PARSER_H_
#define LOCKSTEP_MODELS_EXPORTED_NODE_PARSER_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pt2/json_reader.h"
#include "lockstep/models/exported/graph.h"

namespace lockstep::models::exported {

using checkpoint::pt2::Json;
using checkpoint::pt2::JsonReader;

// A Graph of the schema. Fails `json` if it is malformed.
Graph ParseGraph(JsonReader& json, const Json& graph);

// One graph's values by name, in the order in which they come to be.
class ValueTable {
 public:
  ValueTable(JsonReader& json, const Json& graph, Graph& into);

  // An argument whose values exist already.
  Argument Use(const Json& argument);
  // An argument whose values come to be: an input of the graph or an output of a node.
  Argument Define(const Json& argument);

 private:
  using Values = absl::flat_hash_map<std::string, int32_t>;
  Argument Parse(const Json& argument, bool define);
  Argument Named(const std::string& name, bool define);
  Argument NamedOrNumber(const Json& argument, bool define);
  Argument List(const Json& items, absl::string_view kind, bool define);
  Argument Scalar(const Json& value, absl::string_view kind);

  JsonReader& json_;
  Graph& graph_;
  Values values_;
  // The descriptions of tensors. Json::find takes time in proportion to the number of keys.
  absl::flat_hash_map<absl::string_view, const Json*> tensors_;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_NODE_PARSER_H_
