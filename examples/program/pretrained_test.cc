#include "lockstep/examples/program/pretrained.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;
using ::testing::HasSubstr;

struct Linear : torch::nn::Module {
  Linear(int64_t in, int64_t out) {
    register_parameter("weight", at::zeros({out, in}));
    register_parameter("bias", at::zeros({out}));
  }
};

struct Net : torch::nn::Module {
  explicit Net(int64_t classes) : torch::nn::Module("Net") {
    register_module("body", std::make_shared<Linear>(2, 3));
    register_module("fc", std::make_shared<Linear>(3, classes));
  }
};

// A net of 5 classes with weights that are not zero, under the prefix `prefix`.
Value Trained(const std::string& prefix = "") {
  const Net net(5);
  const c10::NoGradGuard no_grad;
  Value state_dict = Value::OrderedDict();
  for (const auto& [key, value] : checkpoint::StateDict(net).entries()) {
    state_dict.Set(prefix + key.string_value(),
                   at::arange(1.0, 1.0 + value.tensor().numel()).reshape_as(value.tensor()));
  }
  return state_dict;
}

std::string SavedAs(const std::string& name, const Value& value) {
  const std::string path = testing::TempDir() + "/" + name;
  EXPECT_EQ(checkpoint::Save(path, value, {.sync = false}), absl::OkStatus());
  return path;
}

void ExpectBody(const Net& net) {
  EXPECT_TRUE(net.named_parameters()["body.weight"].equal(at::arange(1.0, 7.0, at::kFloat).reshape({3, 2})));
}

TEST(LoadPretrained, FindsTheStateDictInEveryKindOfFile) {
  const std::string safetensors = testing::TempDir() + "/net.safetensors";
  ASSERT_EQ(checkpoint::SaveSafetensors(safetensors, Trained()), absl::OkStatus());
  for (const std::string& path :
       {safetensors, SavedAs("plain.pt", Trained()), SavedAs("entry.pt", Value::Dict({{"state_dict", Trained()}})),
        SavedAs("model.pt", Value::Dict({{"epoch", 3}, {"model", Trained()}})),
        SavedAs("ddp.pt", Value::Dict({{"state_dict", Trained("module.")}})),
        SavedAs("compiled.pt", Trained("_orig_mod.")), SavedAs("both.pt", Trained("_orig_mod.module.")),
        SavedAs("lightning.ckpt", Value::Dict({{"state_dict", Trained("model.")}}))}) {
    Net net(5);
    EXPECT_EQ(*LoadPretrained(path, net), 0);
    ExpectBody(net);
    EXPECT_EQ(net.named_parameters()["fc.bias"][4].item<float>(), 5);
  }
}

TEST(LoadPretrained, AFileOfWhichNothingFitsIsAnError) {
  Net net(5);
  const std::string path = SavedAs("other.pt", Value::Dict({{"conv.weight", at::zeros({3, 3})}}));
  EXPECT_THAT(std::string(LoadPretrained(path, net).status().message()), HasSubstr("4 missing: \"body.weight\""));
  EXPECT_EQ(LoadPretrained(testing::TempDir() + "/none.pt", net).status().code(), absl::StatusCode::kNotFound);
}

TEST(LoadPretrained, LeavesALastLayerOfOtherClassesAlone) {
  for (const std::string prefix : {"", "_orig_mod."}) {
    Net net(2);
    const auto classes = LoadPretrained(SavedAs("classes.pt", Trained(prefix)), net);
    ASSERT_TRUE(classes.ok()) << classes.status();
    EXPECT_EQ(*classes, 5);
    ExpectBody(net);
    EXPECT_TRUE(net.named_parameters()["fc.weight"].equal(at::zeros({2, 3})));
  }
  Net same(5);
  EXPECT_EQ(*LoadPretrained(SavedAs("same.pt", Trained()), same), 0);
  EXPECT_EQ(same.named_parameters()["fc.bias"][4].item<float>(), 5);
}

TEST(LoadPretrained, OtherFeaturesOfTheLastLayerAreAnError) {
  Net net(2);
  Value other = Trained();
  other.Set("fc.weight", at::zeros({5, 4}));
  EXPECT_THAT(std::string(LoadPretrained(SavedAs("features.pt", other), net).status().message()),
              HasSubstr("\"fc.weight\" ([5, 4], the module has [2, 3])"));
}

}  // namespace
}  // namespace lockstep::examples
