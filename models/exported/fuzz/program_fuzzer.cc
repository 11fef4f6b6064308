// Reads any bytes as a record of a .pt2 archive: a program, and a table of weights. In an accepted program, every value
// has one origin before its uses, and the signature fits the graph.

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/pt2/payload.h"
#include "lockstep/models/exported/graph.h"
#include "lockstep/models/exported/graph_parser.h"
#include "lockstep/tools/fuzz/require.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::Payload;
using fuzz::Require;

void CheckGraph(const Graph& graph);

void CheckMeta(const TensorMeta& meta) {
  Require(meta.sizes.size() == meta.strides.size(), "each size has a stride");
  for (const Extent& size : meta.sizes) Require(size.number >= -1, "no size is negative");
}

// The values of a graph that have an origin so far.
class Origins {
 public:
  explicit Origins(size_t values) : known_(values) {}

  void Define(const Argument& argument) {
    for (const Argument& item : argument.items) Define(item);
    if (argument.kind != Argument::Kind::kValue) return;
    Require(IsIndex(argument.value) && !known_[argument.value], "a value has one origin");
    known_[argument.value] = true;
  }

  void Use(const Argument& argument) const {
    Require(argument.items.empty() || argument.kind == Argument::Kind::kList, "items are in a list");
    for (const Argument& item : argument.items) Use(item);
    if (argument.kind == Argument::Kind::kValue)
      Require(IsIndex(argument.value) && known_[argument.value], "a value is used after its origin");
    Require((argument.graph != nullptr) == (argument.kind == Argument::Kind::kGraph), "a body has a graph");
    if (argument.graph) CheckGraph(*argument.graph);
  }

 private:
  bool IsIndex(int32_t value) const { return value >= 0 && static_cast<size_t>(value) < known_.size(); }

  std::vector<bool> known_;
};

void CheckGraph(const Graph& graph) {
  Origins origins(graph.values.size());
  for (const Argument& input : graph.inputs) origins.Define(input);
  for (const Node& node : graph.nodes) {
    for (const NamedArgument& input : node.inputs) origins.Use(input.argument);
    for (const Argument& output : node.outputs) origins.Define(output);
  }
  for (const Argument& output : graph.outputs) origins.Use(output);
  for (const Value& value : graph.values)
    if (value.tensor) CheckMeta(*value.tensor);
}

void CheckProgram(const ExportedGraph& program) {
  CheckGraph(program.graph);
  Require(program.inputs.size() == program.graph.inputs.size(), "each input has a specification");
  Require(program.outputs.size() == program.graph.outputs.size(), "each output has a specification");
  int64_t given = 0, returned = 0;
  for (const InputSpec& input : program.inputs)
    given += input.kind == InputSpec::Kind::kUserInput || input.kind == InputSpec::Kind::kConstantInput;
  for (const OutputSpec& output : program.outputs) returned += output.kind == OutputSpec::Kind::kUserOutput;
  Require(program.arguments.LeafCount() == given, "the arguments have as many leaves as there are inputs");
  Require(program.results.LeafCount() == returned, "the results have as many leaves as there are outputs");
}

}  // namespace
}  // namespace lockstep::models::exported

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::models::exported;  // NOLINT(google-build-using-namespace)
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto program = ParseProgram(text); program.ok()) CheckProgram(*program);
  if (const auto payloads = lockstep::checkpoint::pt2::ParsePayloads(text); payloads.ok())
    for (const Payload& payload : *payloads)
      if (payload.tensor) CheckMeta(*payload.tensor);
  return 0;
}
