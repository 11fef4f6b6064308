// A program of torch.export as plain data: what the file's JSON says, checked, with values by number instead of by
// name. Without LibTorch, so that sanitizers and fuzzers see all of it. Terms are the ones of PyTorch's schema
// (torch/_export/serde/schema.py).

#ifndef LOCKSTEP_MODELS_EXPORTED_GRAPH_H_
#define LOCKSTEP_MODELS_EXPORTED_GRAPH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/pt2/payload.h"

namespace lockstep::models::exported {

using checkpoint::pt2::Extent;
using checkpoint::pt2::TensorMeta;

struct Graph;

// The input of a node, or an output of a node or graph.
struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kValue,  // a value of the graph: a tensor or a symbolic number
    kBool,
    kInt,
    kFloat,
    kComplex,
    kString,
    kDtype,         // as PyTorch's schema numbers them, like the next two
    kMemoryFormat,  //
    kLayout,        //
    kDevice,        // `text` is the type, `integer` the index or -1
    kList,          // of `items`
    kGraph,         // the body of a higher-order operator
    kOperator,      // `text` is its name
    kCustomObject,  // `text` is its class
  };

  Kind kind = Kind::kNone;
  int32_t value = -1;   // kValue: an index into Graph::values
  int64_t integer = 0;  // kBool, kInt, kDtype, kMemoryFormat, kLayout, kDevice
  double real = 0;      // kFloat, kComplex
  double imaginary = 0;
  std::string text = {};
  std::vector<Argument> items = {};
  std::shared_ptr<const Graph> graph = {};
};

struct NamedArgument {
  std::string name;  // in the operator's schema; empty for a higher-order operator
  Argument argument;
};

struct Node {
  std::string name;
  std::string target;  // such as "torch.ops.aten.linear.default"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;  // kValue, kNone, or a kList of kValue
  // The innermost frame of Python outside PyTorch: `file:line: code`. Empty if the file does not tell.
  std::string line;

  // Names the node in an error: node "linear_3" (torch.ops.aten.linear.default) at net.py:12: return self.fc(x)
  std::string Place() const;
};

struct Value {
  std::string name;
  std::optional<TensorMeta> tensor = {};  // absent for a number
};

struct Graph {
  // kValue, or a constant.
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
  // Each value is the output of one node, or an input, and is used only after it.
  std::vector<Node> nodes;
  std::vector<Value> values;
};

// The meaning of one input of the whole program's graph.
struct InputSpec {
  enum class Kind : uint8_t { kParameter, kBuffer, kTensorConstant, kUserInput, kConstantInput, kCustomObject, kToken };
  Kind kind = Kind::kUserInput;
  std::string target = {};  // the Python name of the parameter, buffer or constant
  bool persistent = true;   // of a buffer
};

struct OutputSpec {
  enum class Kind : uint8_t { kUserOutput, kBufferMutation, kParameterMutation, kUserInputMutation, kToken };
  Kind kind = Kind::kUserOutput;
  std::string target = {};  // the Python name of the parameter or buffer; the graph's name of the user input
};

// The structure of nested inputs or outputs (pytree).
struct TreeSpec {
  enum class Kind : uint8_t { kLeaf, kTuple, kList, kDict };
  Kind kind = Kind::kLeaf;
  std::vector<std::string> keys = {};  // of a kDict
  bool integer_keys = false;           // true if the keys of a kDict are numbers
  std::vector<TreeSpec> children = {};

  int64_t LeafCount() const;
};

struct RangeConstraint {
  std::string symbol;
  std::optional<int64_t> min = {};
  std::optional<int64_t> max = {};
};

struct ExportedGraph {
  Graph graph;
  std::vector<InputSpec> inputs;    // as many as graph.inputs
  std::vector<OutputSpec> outputs;  // as many as graph.outputs
  TreeSpec arguments;               // a kTuple of the positional arguments (kTuple) and keyword arguments (kDict)
  TreeSpec results;
  // The names of the positional arguments, and then of the keyword arguments. May be empty.
  std::vector<std::string> argument_names;
  std::vector<std::string> modules;  // the dotted names of all submodules, parents first
  std::vector<RangeConstraint> ranges;
  std::string torch_version;
};

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_GRAPH_H_
