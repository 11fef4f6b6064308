#include "lockstep/models/exported/graph_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::models::exported {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// forward(x, *, flag=None) of a layer with a weight "layer.weight": linear(x, weight), returned in a dict.
constexpr char kProgram[] = R"json({
  "graph_module": {
    "graph": {
      "inputs": [{"as_tensor": {"name": "p_layer_weight"}}, {"as_tensor": {"name": "x"}}, {"as_none": true}],
      "outputs": [{"as_tensor": {"name": "linear"}}],
      "nodes": [{
        "target": "torch.ops.aten.linear.default",
        "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
                   {"name": "weight", "arg": {"as_tensor": {"name": "p_layer_weight"}}, "kind": 1}],
        "outputs": [{"as_tensor": {"name": "linear"}}],
        "metadata": {"stack_trace": "File \"net.py\", line 7, in forward\n  return self.layer(x)\n  File \"/a/torch/nn/modules/linear.py\", line 134, in forward\n    return F.linear(input)"},
        "name": "linear"}],
      "tensor_values": {
        "p_layer_weight": {"dtype": 7, "sizes": [{"as_int": 3}, {"as_int": 2}], "requires_grad": true,
                           "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 2}, {"as_int": 1}],
                           "storage_offset": {"as_int": 0}, "layout": 7},
        "x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s7', positive=True, integer=True)"}}, {"as_int": 2}],
              "requires_grad": false, "device": {"type": "cpu", "index": null},
              "strides": [{"as_int": 2}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}},
      "sym_int_values": {}, "sym_bool_values": {}},
    "signature": {
      "input_specs": [
        {"parameter": {"arg": {"name": "p_layer_weight"}, "parameter_name": "layer.weight"}},
        {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
        {"constant_input": {"name": "flag", "value": {"as_none": true}}}],
      "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "linear"}}}}]},
    "module_call_graph": [
      {"fqn": "", "signature": {"inputs": [], "outputs": [],
        "in_spec": "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}, {\"type\": \"builtins.dict\", \"context\": \"[\\\"flag\\\"]\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}]}]",
        "out_spec": "[1, {\"type\": \"builtins.dict\", \"context\": \"[\\\"logits\\\"]\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}]",
        "forward_arg_names": ["x", "flag"]}},
      {"fqn": "layer", "signature": null}]},
  "range_constraints": {"s7": {"min_val": 2, "max_val": null}},
  "schema_version": {"major": 8, "minor": 17},
  "torch_version": "2.11.0"})json";

std::string Edited(absl::string_view from, absl::string_view to) {
  const std::string edited = absl::StrReplaceAll(kProgram, {{from, to}});
  EXPECT_NE(edited, kProgram) << "the program does not have " << from;
  return edited;
}

TEST(GraphParser, ReadsAProgram) {
  const absl::StatusOr<ExportedGraph> program = ParseProgram(kProgram);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->graph.values.size(), 3);
  ASSERT_EQ(program->graph.nodes.size(), 1);
  EXPECT_EQ(program->graph.nodes[0].Place(),
            "node \"linear\" (torch.ops.aten.linear.default) at net.py:7: return self.layer(x)");
  EXPECT_EQ(program->graph.nodes[0].inputs[0].argument.value, 1);
  EXPECT_EQ(program->inputs[0].target, "layer.weight");
  EXPECT_EQ(program->graph.values[1].tensor->sizes[0].symbol, "s7");
  EXPECT_EQ(program->ranges[0].min, 2);
  EXPECT_EQ(program->ranges[0].max, std::nullopt);
  EXPECT_THAT(program->arguments.children[1].keys, ElementsAre("flag"));
  EXPECT_THAT(program->results.keys, ElementsAre("logits"));
  EXPECT_THAT(program->argument_names, ElementsAre("x", "flag"));
  EXPECT_THAT(program->modules, ElementsAre("layer"));
}

TEST(GraphParser, NamesWhatItRefuses) {
  const struct {
    absl::string_view from, to, error;
    absl::StatusCode code = absl::StatusCode::kDataLoss;
  } cases[] = {
      {R"("major": 8)", R"("major": 9)",
       "its schema has version 9.17, which PyTorch 2.11.0 wrote; this reader knows major version 8",
       absl::StatusCode::kUnimplemented},
      {R"("arg": {"as_tensor": {"name": "x"}}, "kind": 1)", R"("arg": {"as_tensor": {"name": "linear"}}, "kind": 1)",
       "node \"linear\" (torch.ops.aten.linear.default) at net.py:7: return self.layer(x): input \"input\": value "
       "\"linear\" is used before anything computes it"},
      {R"("outputs": [{"as_tensor": {"name": "linear"}}],
        "metadata")",
       R"("outputs": [{"as_tensor": {"name": "x"}}],
        "metadata")",
       "return self.layer(x): value \"x\" is computed twice"},
      {R"("outputs": [{"as_tensor": {"name": "linear"}}],
      "nodes")",
       R"("outputs": [{"as_tensor": {"name": "y"}}],
      "nodes")",
       "an output of the graph: value \"y\" is used before anything computes it"},
      {R"("as_none": true}],)", R"("as_nothing": true}],)", "an argument of kind \"as_nothing\" is not supported",
       absl::StatusCode::kUnimplemented},
      {R"("as_int": 3)", R"("as_int": -3)", "value \"p_layer_weight\": a size, stride or offset is -3"},
      {R"("dtype": 7, "sizes": [{"as_int": 3})", R"("dtype": "7", "sizes": [{"as_int": 3})",
       "value \"p_layer_weight\": dtype is string, expected an integer of 64 bits"},
      {R"([{"as_int": 3}, {"as_int": 2}])", R"([{"as_int": 3}])", "1 sizes and 2 strides"},
      {R"({"name": "p_layer_weight"}, "parameter_name")", R"({"name": "x"}, "parameter_name")",
       "inputs 0 is \"p_layer_weight\" in the graph and \"x\" in the signature"},
      {R"({"constant_input": {"name": "flag", "value": {"as_none": true}}})", R"({"token": {"arg": {"name": "flag"}}})",
       "an input of kind \"token\" is not supported", absl::StatusCode::kUnimplemented},
      {R"({"user_output": )", R"({"gradient_to_parameter": )",
       "an output of kind \"gradient_to_parameter\" is not supported", absl::StatusCode::kUnimplemented},
      {R"(,
        {"constant_input": {"name": "flag", "value": {"as_none": true}}})",
       "", "the signature has 2 inputs and the graph 3"},
      {R"({\"type\": \"builtins.dict\", \"context\": \"[\\\"logits\\\"]\", \"children_spec\": [)",
       R"({\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": null, \"children_spec\": []}, )",
       "the structure of the outputs has 2 leaves, and the signature 1"},
      {R"([1, {\"type\": \"builtins.dict\")", R"([2, {\"type\": \"builtins.dict\")",
       "out_spec: a tree that is not of version 1", absl::StatusCode::kUnimplemented},
      {R"("range_constraints")", R"("ranges")", "field \"range_constraints\" is missing"},
      {R"("torch_version": "2.11.0"})", R"("torch_version": "2.11.0")", "not valid JSON"},
  };
  for (const auto& one : cases) {
    const absl::Status status = ParseProgram(Edited(one.from, one.to)).status();
    EXPECT_EQ(status.code(), one.code) << status;
    EXPECT_THAT(status.message(), HasSubstr(std::string(one.error)));
  }
}

TEST(GraphParser, RefusesDeepNesting) {
  const std::string deep = absl::StrCat("{\"a\":", std::string(1000000, '['), std::string(1000000, ']'), "}");
  EXPECT_EQ(ParseProgram(deep).status(), absl::DataLossError("JSON nested more than 500 deep"));
}

}  // namespace
}  // namespace lockstep::models::exported
