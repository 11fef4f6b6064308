// Second forwards that fail, or that differ from the first.

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/recompute/recompute.h"
#include "lockstep/models/recompute/testing/functions.h"
#include "lockstep/models/recompute/testing/same_bits.h"
#include "lockstep/models/scripted/script_module.h"

namespace lockstep::models {
namespace {

using testing::Counted;
using testing::ExpectSameBits;
using testing::Function;
using ::testing::HasSubstr;
using testing::Input;
using testing::Inputs;
using testing::Layer;
using ::testing::Not;
using testing::Recomputed;
using testing::SumOf;
using testing::Tensors;

absl::Status StatusOf(const std::function<void()>& f) { return TorchStatus("", f); }

// A function that is `first` at its first call, and later `second`.
Function Changing(const Function& first, const Function& second) {
  return [first, second, calls = std::make_shared<int>()](const Tensors& inputs) {
    return (*calls)++ == 0 ? first(inputs) : second(inputs);
  };
}

absl::Status StatusOfBackward(const Function& function, const RecomputeOptions& options = {}) {
  const Tensors outputs = Recomputed(function, Inputs(), options);
  return StatusOf([&] { SumOf(outputs).backward(); });
}

TEST(Recompute, ABackwardThroughAFreedGraphIsAnErrorAsWithout) {
  const at::Tensor loss = SumOf(Recomputed(Layer, Inputs()));
  loss.backward();
  EXPECT_THAT(StatusOf([&] { loss.backward(); }).message(), HasSubstr("a second time"));
}

TEST(Recompute, AnExceptionOfTheSecondForwardIsTheBackwards) {
  bool fail = true;
  const Function failing = [&fail](const Tensors& inputs) {
    if (fail) throw std::runtime_error("the disk is on fire");
    return Layer(inputs);
  };
  const Tensors inputs = Inputs(), plain = Inputs();
  const at::Tensor loss = SumOf(Recomputed(Changing(Layer, failing), inputs));
  EXPECT_THAT(StatusOf([&] { loss.backward({}, /*keep_graph=*/true); }).message(), HasSubstr("the disk is on fire"));
  fail = false;
  loss.backward();
  SumOf(Layer(plain)).backward();
  ExpectSameBits({inputs[0].grad(), inputs[1].grad()}, {plain[0].grad(), plain[1].grad()});
}

TEST(Recompute, AnExceptionOfTheFirstForwardEndsItsHooks) {
  const absl::Status status =
      StatusOf([] { Recompute([](const Tensors&) -> Tensors { throw std::runtime_error("no input"); }, Inputs()); });
  EXPECT_THAT(status.message(), HasSubstr("no input"));
  const Counted counted{Layer};
  SumOf(counted(Inputs())).backward();
  EXPECT_EQ(counted.counts->first, 1);
}

TEST(Recompute, AnotherShapeOrDtypeIsAnError) {
  const auto exp_of = [](at::Tensor (*change)(const at::Tensor&)) {
    return [change](const Tensors& inputs) { return Tensors{change(inputs[0]).exp().sum()}; };
  };
  const auto same = exp_of([](const at::Tensor& x) { return x; });
  const auto fewer_rows = exp_of([](const at::Tensor& x) { return x.slice(0, 1); });
  const auto in_double = exp_of([](const at::Tensor& x) { return x.to(at::kDouble); });
  const absl::Status shape = StatusOfBackward(Changing(same, fewer_rows));
  EXPECT_EQ(shape.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      shape.message(),
      "recompute: the second forward saved Float [3, 6] on cpu of ExpBackward0 as tensor 0; expected Float [4, 6] "
      "on cpu of ExpBackward0, as the first forward saved");
  EXPECT_THAT(StatusOfBackward(Changing(same, in_double)).message(),
              HasSubstr("saved Double [4, 6] on cpu of ExpBackward0 as tensor 0; expected Float [4, 6] on cpu of"));
  RecomputeOptions options;
  options.determinism_check = false;
  const absl::Status unchecked = StatusOfBackward(Changing(same, in_double), options);
  EXPECT_THAT(unchecked.message(), Not(HasSubstr("recompute")));
}

TEST(Recompute, AnotherOperationIsAnError) {
  const Function exp = [](const Tensors& inputs) { return Tensors{inputs[0].exp()}; };
  const Function sine = [](const Tensors& inputs) { return Tensors{inputs[0].sin()}; };
  EXPECT_THAT(StatusOfBackward(Changing(exp, sine)).message(),
              HasSubstr("saved Float [4, 6] on cpu of no operation as tensor 0; expected Float [4, 6] on cpu of "
                        "ExpBackward0"));
}

TEST(Recompute, AnErrorThatTheFunctionCatchesIsAnError) {
  const Function sine = [](const Tensors& inputs) {
    try {
      return Tensors{inputs[0].sin().exp()};
    } catch (const std::exception&) {
      return Tensors{inputs[0].exp()};
    }
  };
  const Function exp = [](const Tensors& inputs) { return Tensors{inputs[0].exp().exp()}; };
  EXPECT_THAT(StatusOfBackward(Changing(exp, sine)).message(), HasSubstr("recompute: the function caught an error"));
}

// LibTorch's interpreter differentiates a method itself from the second call on, and then saves others.
TEST(Recompute, AScriptedModuleMustNotBeOptimized) {
  const auto status = [](bool optimize) {
    torch::jit::Module module("net");
    module.register_parameter("weight", Input({6, 6}, 1), /*is_buffer=*/false);
    module.define("def forward(self, x):\n  return torch.tanh(torch.mm(x, self.weight)).sigmoid() * x\n");
    scripted::ScriptModule net(module, scripted::ScriptOptions{"forward", optimize});
    const at::Tensor x = Input({4, 6}, 2).requires_grad_();
    return StatusOf([&] { Recompute(net, x).toTensor().sum().backward(); });
  };
  EXPECT_EQ(status(false), absl::OkStatus());
  EXPECT_THAT(status(true).message(), HasSubstr("recompute: the second forward saved"));
}

TEST(Recompute, AnotherNumberOfTensorsIsAnError) {
  const Function one = [](const Tensors& inputs) { return Tensors{inputs[0].exp()}; };
  const Function three = [](const Tensors& inputs) { return Tensors{inputs[0].exp().tanh().sigmoid()}; };
  EXPECT_EQ(StatusOfBackward(Changing(three, one)).message(),
            "recompute: the second forward saved 1 tensors; expected 3, as many as the first");
  EXPECT_EQ(StatusOfBackward(Changing(one, three)), absl::OkStatus());  // the early stop hides it, as in Python
  RecomputeOptions options;
  options.early_stop = false;
  EXPECT_EQ(StatusOfBackward(Changing(one, three), options).message(),
            "recompute: the second forward saved 3 tensors; expected 1, as many as the first");
}

TEST(Recompute, AnInputThatChangesInPlaceIsAnErrorAsWithout) {
  at::Tensor x = Input({3}, 1).requires_grad_();
  at::Tensor hidden = x * 2;
  const at::Tensor loss = Recompute([](const at::Tensor& x) { return x.exp().sum(); }, hidden);
  hidden.add_(1);
  EXPECT_THAT(StatusOf([&] { loss.backward(); }).message(), HasSubstr("modified by an inplace operation"));
}

TEST(Recompute, ASavedTensorThatChangesInPlaceIsAnErrorAsWithout) {
  const Function wrong = [](const Tensors& inputs) {
    at::Tensor hidden = inputs[0].exp();
    const at::Tensor output = hidden.tanh();
    hidden.add_(1);  // exp() has saved its result
    return Tensors{output.sigmoid()};
  };
  EXPECT_THAT(StatusOf([&] { SumOf(wrong(Inputs())).backward(); }).message(), HasSubstr("inplace"));
  EXPECT_THAT(
      StatusOfBackward(wrong).message(),
      HasSubstr(
          "tensor 0, Float [4, 6] on cpu of ExpBackward0, was changed in place after it was saved: expected version 0, "
          "found 1"));
}

}  // namespace
}  // namespace lockstep::models
