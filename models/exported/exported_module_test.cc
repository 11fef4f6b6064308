#include "lockstep/models/exported/exported_module.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/models/exported/graph_parser.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::Value;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFolder[] = "models/exported/testdata/";

ExportedModule LoadOrDie(const std::string& name, const LoadOptions& options = {}) {
  return *Load(kFolder + name, options);
}

// The values that Python computes; see testdata/make_testdata.py.
Value Expected(const std::string& net = "net") { return *checkpoint::Load(kFolder + net + ".pt"); }

c10::IValue CallNet(ExportedModule& net, const Value& expected) {
  return net->Call({expected.Find("rows")->tensor()}, {{"factor", expected.Find("factor")->tensor()}});
}

at::Tensor LogitsOf(const c10::IValue& output) { return output.toGenericDict().at("logits").toTensor(); }

// Processors round otherwise; peer/ compares bits.
bool IsClose(const at::Tensor& a, const at::Tensor& b) { return a.dtype() == b.dtype() && a.allclose(b, 1e-12, 1e-12); }

absl::Status ErrorOf(const std::function<void()>& f) { return TorchStatus("", f); }

// A program of one input "x" of `type` and `nodes`, which compute "y".
absl::StatusOr<std::shared_ptr<torch::nn::Module>> MakeProgram(const std::string& nodes) {
  const std::string meta = R"({"dtype": 7, "sizes": [{"as_int": 2}], "requires_grad": false, "device": {"type": "cpu"},
    "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7})";
  const std::string leaf = R"({\"type\": null, \"context\": null, \"children_spec\": []})";
  const std::string in = R"([1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\":
    \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [)" +
                         leaf + R"(]}, {\"type\": \"builtins.dict\",
    \"context\": \"[]\", \"children_spec\": []}]}])";
  std::string json = R"({"graph_module": {"graph": {"inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor":
    {"name": "y"}}], "nodes": [)" +
                     nodes + R"(], "tensor_values": {"x": )" + meta + R"(, "a": )" + meta + R"(, "y": )" + meta + R"(}},
    "signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs":
    [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}]}, "module_call_graph": [{"fqn": "", "signature": {"in_spec":
    ")" + in + R"(", "out_spec": "[1, )" +
                     leaf + R"(]"}}]}, "range_constraints": {}, "schema_version": {"major": 8,
    "minor": 17}, "torch_version": "2.11.0"})";
  for (char& c : json) c = c == '\n' ? ' ' : c;
  absl::StatusOr<ExportedGraph> graph = ParseProgram(json);
  if (!graph.ok()) return graph.status();
  auto program = std::make_shared<Program>();
  program->graph = std::make_shared<ExportedGraph>(*std::move(graph));
  program->tensors.resize(1);
  return TorchStatusOr(
      "", [&]() -> std::shared_ptr<torch::nn::Module> { return std::make_shared<ExportedModuleImpl>(program); });
}

std::string NodeOf(const std::string& target, const std::string& inputs) {
  return R"({"name": "n", "target": ")" + target + R"(", "inputs": [)" + inputs +
         R"(], "outputs": [{"as_tensor": {"name": "y"}}], "metadata": {"stack_trace": "File \"net.py\", line 3, in f\n  y"}})";
}

// Expects the outputs, gradients and state of Python, after one call and its backward.
void ExpectComputesWhatPythonComputes(const std::string& name) {
  const Value expected = Expected(name);
  ExportedModule net = LoadOrDie(name + ".pt2");
  EXPECT_TRUE(net->is_training());
  const c10::IValue output = CallNet(net, expected);
  EXPECT_TRUE(IsClose(LogitsOf(output), expected.Find("logits")->tensor()));
  const at::Tensor tied = output.toGenericDict().at("parts").toTensorVector()[1];
  (LogitsOf(output).square().sum() + tied.sum()).backward();
  for (const auto& parameter : net->named_parameters()) {
    const Value* gradient = expected.Find("gradients")->Find(parameter.key());
    ASSERT_NE(gradient, nullptr) << parameter.key();
    EXPECT_TRUE(IsClose(parameter.value().grad(), gradient->tensor())) << parameter.key();
  }
  const Value state_dict = checkpoint::StateDict(*net);
  for (const auto& [key, value] : expected.Find("state_dict")->entries()) {
    EXPECT_TRUE(IsClose(state_dict.Find(key)->tensor(), value.tensor())) << key.string_value();
  }
}

TEST(ExportedModule, ComputesWhatPythonComputes) {
  for (const char* name : {"net", "net_2.7", "net_2.15"}) {
    SCOPED_TRACE(name);
    ExpectComputesWhatPythonComputes(name);
  }
}

TEST(ExportedModule, HasPythonsNamesOrderAndTies) {
  ExportedModule net = LoadOrDie("net.pt2");
  EXPECT_THAT(net->named_parameters().keys(), ElementsAre("last.weight", "last.bias", "first.weight", "first.bias",
                                                          "norm.weight", "norm.bias", "tied.bias"));
  EXPECT_EQ(net->parameters().size(), 7);
  const torch::nn::Module& module = *net;
  EXPECT_EQ(module.named_parameters().size(), 8);
  EXPECT_TRUE(module.named_parameters()["last.weight"].is_same(module.named_parameters()["tied.weight"]));
  EXPECT_THAT(net->named_buffers().keys(),
              ElementsAre("scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : checkpoint::StateDict(*net).entries()) keys.push_back(key.string_value());
  std::vector<std::string> in_python;
  const Value expected = Expected();
  for (const auto& [key, value] : expected.Find("state_dict")->entries()) in_python.push_back(key.string_value());
  EXPECT_EQ(keys, in_python);
}

TEST(ExportedModule, NamesTheInputThatDoesNotFit) {
  ExportedModule net = LoadOrDie("net.pt2");
  const at::Tensor rows = at::ones({6, 4}, at::kDouble), factor = at::ones({4}, at::kDouble);
  const auto error = [&](std::vector<c10::IValue> inputs, NamedInputs named) {
    const absl::Status status = ErrorOf([&] { net->Call(std::move(inputs), std::move(named)); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error({rows}, {}), "input \"factor\" is missing; the program's inputs: rows, factor");
  EXPECT_EQ(error({rows}, {{"factory", factor}}), "the program has no input \"factory\"; its inputs: rows, factor");
  EXPECT_EQ(error({rows, factor}, {{"rows", rows}}), "input \"rows\" is given twice");
  EXPECT_EQ(error({rows, factor, rows}, {}), "3 inputs for a program with 2: rows, factor");
  EXPECT_EQ(error({1, factor}, {}), "input \"rows\" is Int, expected a tensor");
  EXPECT_EQ(error({rows[0], factor}, {}),
            "input \"rows\" has shape [4], and the program was exported for 2 dimensions");
  EXPECT_EQ(error({rows.narrow(1, 0, 3), factor}, {}),
            "dimension 1 of input \"rows\" is 3, and the program was exported for 4; give torch.export.export "
            "dynamic_shapes to let it vary");
  EXPECT_THAT(error({at::ones({101, 4}, at::kDouble), factor}, {}),
              HasSubstr("dimension 0 of input \"rows\" is 101, and the program was exported for 3 to 100"));
  EXPECT_THAT(error({rows.narrow(0, 0, 2), factor}, {}), HasSubstr("is 2, and the program was exported for 3 to 100"));
  EXPECT_EQ(LogitsOf(net(rows, factor)).size(0), 6);  // keyword arguments by their place
}

TEST(ExportedModule, NamesTheNodeWhoseOperatorFails) {
  ExportedModule net = LoadOrDie("net.pt2");
  const at::Tensor rows = at::ones({6, 4}, at::kFloat), factor = at::ones({4}, at::kDouble);
  EXPECT_THAT(
      ErrorOf([&] { net(rows, factor); }).message(),
      AllOf(HasSubstr("in node \"linear\" (torch.ops.aten.linear.default) at "), HasSubstr("self.first(rows)")));
}

TEST(ExportedModule, RefusesNodesByName) {
  const std::string x = R"({"name": "self", "arg": {"as_tensor": {"name": "x"}}})";
  const struct {
    std::string node, error;
  } cases[] = {
      {NodeOf("torch.ops.mine.relu.default", x), "no operator mine::relu is registered in this process"},
      {NodeOf("torch.ops.aten.relu", x), "its target is not torch.ops.NAMESPACE.NAME.OVERLOAD"},
      {NodeOf("numpy.sin", x), "it is neither an operator nor a function on sizes that is supported"},
      {NodeOf("torch.ops.aten.relu.default", ""), "its input \"self\" is missing"},
      {NodeOf("torch.ops.aten.relu.default", x + ", " + x), "its input \"self\" is given twice"},
      {NodeOf("torch.ops.aten.relu.default", x + R"(, {"name": "b", "arg": {"as_int": 1}})"),
       "its operator has no input \"b\""},
      {NodeOf("torch.ops.aten.relu.default", R"({"name": "self", "arg": {"as_string": "x"}})"),
       "input \"self\": it does not have the type Tensor"},
      {NodeOf("torch.ops.aten.softmax.int", x + R"(, {"name": "dim", "arg": {"as_float": 0.5}})"),
       "input \"dim\": it does not have the type int"},
      {NodeOf("torch.ops.aten.unbind.int", x), "output 0 does not have the type Tensor[]"},
      {NodeOf("torch.ops.aten.var_mean.default", x), "it has 1 outputs, and its operator 2"},
      {NodeOf("torch.ops.higher_order.scan", R"({"name": "", "arg": {"as_tensor": {"name": "x"}}})"),
       "this higher-order operator is not supported"},
      {NodeOf("torch.ops.higher_order.cond", R"({"name": "", "arg": {"as_tensor": {"name": "x"}}})"),
       "it has 0 graphs, expected 2"},
      {NodeOf("_operator.neg", x + ", " + x), "it does not have 1 inputs and one output"},
  };
  for (const auto& one : cases) {
    const absl::Status status = MakeProgram(one.node).status();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("node \"n\" ("), HasSubstr(") at net.py:3: y: " + one.error)));
  }
}

TEST(ExportedModule, CallsAnOperatorOfTheProgram) {
  static const auto registration =
      torch::RegisterOperators().op("lockstep_exported_test::twice(Tensor self, float by=2) -> Tensor",
                                    [](const at::Tensor& self, double by) { return self * by; });
  const std::string x = R"({"name": "self", "arg": {"as_tensor": {"name": "x"}}})";
  const auto made = MakeProgram(NodeOf("torch.ops.lockstep_exported_test.twice.default", x));
  ASSERT_TRUE(made.ok()) << made.status();
  const c10::IValue y = std::dynamic_pointer_cast<ExportedModuleImpl>(*made)->forward(at::ones({2}));
  EXPECT_TRUE(y.toTensor().equal(at::full({2}, 2.0)));
}

TEST(ExportedModule, FreesAValueAfterItsLastUse) {
  static size_t uses = 0;
  static const auto registration = torch::RegisterOperators().op(
      "lockstep_exported_test::count_uses(Tensor self) -> Tensor", [](const at::Tensor& self) {
        uses = self.use_count();
        return self * 2;
      });
  const auto node = [](const std::string& target, const std::string& from, const std::string& to) {
    return R"({"name": "n", "target": ")" + target +
           R"(", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": ")" + from +
           R"("}}}], "outputs": [{"as_tensor": {"name": ")" + to + R"("}}]})";
  };
  const auto made = MakeProgram(node("torch.ops.aten.relu.default", "x", "a") + ", " +
                                node("torch.ops.lockstep_exported_test.count_uses.default", "a", "y"));
  ASSERT_TRUE(made.ok()) << made.status();
  std::dynamic_pointer_cast<ExportedModuleImpl>(*made)->forward(at::ones({2}));
  EXPECT_EQ(uses, 1);  // the operator's own argument
}

TEST(ExportedModule, SwitchesItsMode) {
  for (const char* program : {"train", "eval"}) {
    LoadOptions options;
    options.program = program;
    ExportedModule net = LoadOrDie("programs.pt2", options);
    EXPECT_EQ(net->is_training(), program == std::string("train"));
    const at::Tensor rows = at::ones({3, 2});
    const auto drops = [&] { return net(rows).toTensor().eq(0).any().item<bool>(); };
    at::manual_seed(1);
    net->train();
    EXPECT_TRUE(drops());
    net->eval();
    EXPECT_FALSE(drops());
  }
}

TEST(ExportedModule, SaysWhichNodeCannotSwitch) {
  const std::string x = R"({"name": "self", "arg": {"as_tensor": {"name": "x"}}})";
  const auto made = MakeProgram(NodeOf("torch.ops.aten.bernoulli.default", x));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(ErrorOf([&] { (*made)->eval(); }),
            absl::FailedPreconditionError(
                "the program cannot switch to evaluation mode at node \"n\" (torch.ops.aten.bernoulli.default) at "
                "net.py:3: y: it drops at random, and no flag switches it off; export the net in Python after "
                "net.eval()"));
  EXPECT_TRUE((*made)->is_training());
  EXPECT_TRUE(ErrorOf([&] { (*made)->train(); }).ok());
}

TEST(ExportedModule, KnowsTheModeOfADecomposedNormalisation) {
  const std::string x = R"({"name": "input", "arg": {"as_tensor": {"name": "x"}}})";
  const auto number = [](const std::string& name, const std::string& value) {
    return R"(, {"name": ")" + name + R"(", "arg": )" + value + "}";
  };
  const std::string rest = number("momentum", R"({"as_float": 0.1})") + number("eps", R"({"as_float": 0.1})");
  for (const bool trains : {false, true}) {
    std::string node =
        NodeOf("torch.ops.aten.native_batch_norm.default",
               x + number("weight", R"({"as_none": true})") + number("bias", R"({"as_none": true})") +
                   number("running_mean", R"({"as_none": true})") + number("running_var", R"({"as_none": true})") +
                   number("training", trains ? R"({"as_bool": true})" : R"({"as_bool": false})") + rest);
    const std::string one = R"("outputs": [{"as_tensor": {"name": "y"}}])";
    node.replace(node.find(one), one.size(),
                 R"("outputs": [{"as_tensor": {"name": "y"}}, {"as_none": true}, {"as_none": true}])");
    const auto made = MakeProgram(node);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ((*made)->is_training(), trains);
    EXPECT_TRUE(ErrorOf([&] { (*made)->train(trains); }).ok());
    EXPECT_THAT(ErrorOf([&] { (*made)->train(!trains); }).message(), HasSubstr("run_decompositions() has replaced"));
  }
}

TEST(ExportedModule, ClonesShareNothing) {
  const Value expected = Expected();
  ExportedModule net = LoadOrDie("net.pt2");
  net->eval();
  const auto copy = std::dynamic_pointer_cast<ExportedModuleImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_FALSE(copy->is_training());
  EXPECT_EQ(copy->parameters().size(), net->parameters().size());  // tied
  const at::Tensor before = LogitsOf(CallNet(net, expected)).detach();
  {
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : copy->parameters()) parameter.zero_();
    for (at::Tensor& buffer : copy->buffers()) buffer.zero_();
  }
  EXPECT_TRUE(LogitsOf(CallNet(net, expected)).equal(before));
}

TEST(ExportedModule, RunsInDataParallel) {
  LoadOptions options;
  options.program = "eval";
  ExportedModule net = LoadOrDie("programs.pt2", options), alone = LoadOrDie("programs.pt2", options);
  dp::Options logical;
  logical.device_ids = {-1, -1};
  auto wrapped = dp::Wrap(net, logical);
  ASSERT_TRUE(wrapped.ok()) << wrapped.status();
  const at::Tensor rows = at::randn({6, 2});
  const at::Tensor output = (*wrapped)(rows).toTensor();
  EXPECT_TRUE(output.equal(alone(rows).toTensor()));
  output.square().sum().backward();
  alone(rows).toTensor().square().sum().backward();
  EXPECT_TRUE(net->parameters()[0].grad().allclose(alone->parameters()[0].grad()));
}

}  // namespace
}  // namespace lockstep::models::exported
