#include "lockstep/checkpoint/state_dict.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/non_persistent_buffers.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A linear layer, and a normalisation with its buffers; the decoder's weight may be tied to the encoder's.
struct Linear : torch::nn::Module {
  Linear(int64_t in, int64_t out) {
    weight = register_parameter("weight", at::zeros({out, in}));
    bias = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor weight, bias;
};

struct Norm : torch::nn::Module {
  explicit Norm(int64_t n) {
    // Registered before its parameters: the order of a state dict is by kind.
    register_buffer("running_mean", at::zeros({n}));
    register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
    register_parameter("weight", at::ones({n}));
    register_parameter("none", at::Tensor());
  }
};

struct Net : torch::nn::Module {
  explicit Net(int64_t hidden = 3) : torch::nn::Module("Net") {
    encoder = register_module("encoder", std::make_shared<Linear>(2, hidden));
    register_module("norm", std::make_shared<Norm>(hidden));
    register_parameter("scale", at::ones({}));
  }
  std::shared_ptr<Linear> encoder;
};

std::vector<std::string> Names(const Value& dict) {
  std::vector<std::string> names;
  for (const auto& entry : dict.entries()) names.push_back(entry.first.string_value());
  return names;
}

void Fill(torch::nn::Module& module, double value) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& tensor : module.parameters()) tensor.fill_(value++);
  for (at::Tensor& tensor : module.buffers()) tensor.fill_(value++);
}

// Its mask is not part of the state dict.
struct Masked : torch::nn::Module, NonPersistentBuffers {
  Masked() {
    register_buffer("mask", at::ones({2}));
    register_buffer("mean", at::zeros({2}));
  }
  bool IsNonPersistent(const std::string& buffer) const override { return buffer == "mask"; }
};

TEST(StateDict, LeavesOutBuffersThatAreNotPersistent) {
  Masked from, to;
  Fill(from, 5);
  EXPECT_THAT(Names(StateDict(from)), ElementsAre("mean"));
  const absl::Status loaded = LoadStateDict(to, StateDict(from));
  EXPECT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(at::equal(to.buffers()[0], at::ones({2})));
  EXPECT_TRUE(at::equal(to.buffers()[1], from.buffers()[1]));
}

TEST(StateDict, HasPythonsNamesOrderAndMetadata) {
  const Value value = StateDict(Net());
  EXPECT_EQ(value.type_name(), "OrderedDict");
  EXPECT_THAT(Names(value), ElementsAre("scale", "encoder.weight", "encoder.bias", "norm.weight", "norm.running_mean",
                                        "norm.num_batches_tracked"));
  const Value metadata = *GetDict(value.attributes(), "_metadata");
  EXPECT_THAT(Names(metadata), ElementsAre("", "encoder", "norm"));
  EXPECT_EQ(*GetInt(metadata, {"", "version"}), 1);
  EXPECT_EQ(*GetInt(metadata, {"norm", "version"}), 2);
  EXPECT_FALSE(value.Find("scale")->tensor().requires_grad());
}

TEST(StateDict, TiedWeightsStandUnderEachNameAndAreStoredOnce) {
  Net net;
  net.register_module("tied", net.encoder);
  const std::string path = testing::TempDir() + "/tied.pt";
  ASSERT_TRUE(Save(path, StateDict(net)).ok());
  const Value loaded = *Load(path);
  EXPECT_TRUE(GetTensor(loaded, "tied.weight")->is_alias_of(*GetTensor(loaded, "encoder.weight")));
}

TEST(LoadStateDict, CopiesInPlaceThroughAFile) {
  Net from, to;
  Fill(from, 5);
  Fill(to, 50);
  const at::Tensor weight = to.encoder->weight;
  const std::string path = testing::TempDir() + "/model.pt";
  ASSERT_TRUE(Save(path, StateDict(from)).ok());
  ASSERT_TRUE(LoadStateDict(to, *Load(path)).ok());
  EXPECT_TRUE(Identical(StateDict(to), StateDict(from)));
  EXPECT_TRUE(to.encoder->weight.is_same(weight)) << "an optimizer's references stay good";
  EXPECT_TRUE(weight.requires_grad());
}

TEST(LoadStateDict, ConvertsDtypesAndTakesOneElementForAScalar) {
  Net net;
  Value value = StateDict(Net());
  value.Set("encoder.bias", at::full({3}, 2.5, at::kDouble));
  value.Set("scale", at::full({1}, 7.0));
  ASSERT_TRUE(LoadStateDict(net, value).ok());
  EXPECT_EQ(net.encoder->bias[0].item<float>(), 2.5f);
  EXPECT_EQ(net.encoder->bias.scalar_type(), at::kFloat);
  EXPECT_EQ(net.named_parameters()["scale"].item<float>(), 7.0f);
}

TEST(LoadStateDict, SaysInOneLineWhatDoesNotFitAndCopiesNothing) {
  Net net;
  Fill(net, 1);
  const Value before = *Load([&] {
    const std::string path = testing::TempDir() + "/before.pt";
    EXPECT_TRUE(Save(path, StateDict(net)).ok());
    return path;
  }());
  Value other = Value::OrderedDict({{"scale", at::zeros({})},
                                    {"encoder.weight", at::zeros({4, 2})},
                                    {"encoder.bias", 3},
                                    {"norm.running_mean", at::zeros({3})},
                                    {"norm.num_batches_tracked", at::zeros({}, at::kLong)},
                                    {"head.weight", at::zeros({1})}});
  EXPECT_EQ(
      LoadStateDict(net, other),
      absl::InvalidArgumentError(
          "the state dict (6 keys) does not fit the module Net (6 keys): 1 missing: \"norm.weight\"; 1 unexpected: "
          "\"head.weight\"; 2 mismatched: \"encoder.weight\" ([4, 2], the module has [3, 2]), \"encoder.bias\" "
          "(expected a tensor, found int, the module has [3])"));
  EXPECT_EQ(
      LoadStateDict(net, other, {.strict = false}),
      absl::InvalidArgumentError(
          "the state dict (6 keys) does not fit the module Net (6 keys): 2 mismatched: \"encoder.weight\" ([4, 2], "
          "the module has [3, 2]), \"encoder.bias\" (expected a tensor, found int, the module has [3])"));
  EXPECT_TRUE(Identical(StateDict(net), before));
}

TEST(LoadStateDict, ListsFiveOfManyKeys) {
  Value other = Value::OrderedDict();
  for (int i = 0; i < 100; ++i) other.Set("layer" + std::to_string(i), at::zeros({1}));
  Net net;
  const std::string message(LoadStateDict(net, other).message());
  EXPECT_THAT(message,
              HasSubstr("100 unexpected: \"layer0\", \"layer1\", \"layer2\", \"layer3\", \"layer4\" and 95 more"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(LoadStateDict, NonStrictTakesWhatIsThere) {
  Net net;
  ASSERT_TRUE(LoadStateDict(net, Value::Dict({{"scale", at::full({}, 9.0)}, {"extra", 1}}), {.strict = false}).ok());
  EXPECT_EQ(net.named_parameters()["scale"].item<float>(), 9.0f);
}

TEST(LoadStateDict, RemovesAPrefixOnRequest) {
  Net from, to;
  Fill(from, 3);
  Value wrapped = Value::OrderedDict();
  for (const auto& [key, tensor] : StateDict(from).entries()) wrapped.Set("module." + key.string_value(), tensor);
  wrapped.SetAttributes(StateDict(from).attributes());
  EXPECT_FALSE(LoadStateDict(to, wrapped).ok());
  ASSERT_TRUE(LoadStateDict(to, wrapped, {.remove_prefix = "module."}).ok());
  EXPECT_TRUE(Identical(StateDict(to), StateDict(from)));
}

// A state dict as a program saves it from a wrapped module.
Value WithPrefix(const torch::nn::Module& module, const std::string& prefix) {
  Value wrapped = Value::OrderedDict();
  for (const auto& [key, tensor] : StateDict(module).entries()) wrapped.Set(prefix + key.string_value(), tensor);
  return wrapped;
}

TEST(LoadStateDict, NonStrictTellsWhatWasLoadedAndWhatNot) {
  Net net;
  LoadedKeys keys;
  ASSERT_EQ(
      LoadStateDict(net, Value::Dict({{"scale", at::full({}, 9.0)}, {"extra", 1}}), {.strict = false, .keys = &keys}),
      absl::OkStatus());
  EXPECT_EQ(keys.loaded, 1);
  EXPECT_THAT(keys.missing, ElementsAre("encoder.weight", "encoder.bias", "norm.weight", "norm.running_mean"));
  EXPECT_THAT(keys.unexpected, ElementsAre("extra"));
  ASSERT_EQ(LoadStateDict(net, WithPrefix(net, "net."), {.strict = false, .keys = &keys}), absl::OkStatus());
  EXPECT_EQ(keys.loaded, 0);
  EXPECT_EQ(keys.unexpected.size(), 6);
  ASSERT_EQ(LoadStateDict(net, StateDict(Net()), {.keys = &keys}), absl::OkStatus());
  EXPECT_EQ(keys.loaded, 6);
  EXPECT_THAT(keys.missing, testing::IsEmpty());
  EXPECT_THAT(keys.unexpected, testing::IsEmpty());
}

TEST(LoadStateDict, IgnoresNamedKeysAndPatternsInBothDirections) {
  Net from, to;
  Fill(from, 3);
  Value other = StateDict(from);
  other.Set("encoder.weight", at::zeros({4, 2}));  // another shape
  other.Set("head.0.weight", at::zeros({1}));      // unexpected
  LoadedKeys keys;
  LoadStateDictOptions options;
  options.ignored_keys = {"encoder.*", "head*", "scale"};
  options.keys = &keys;
  ASSERT_EQ(LoadStateDict(to, other, options), absl::OkStatus());
  EXPECT_EQ(keys.loaded, 3);
  EXPECT_THAT(keys.missing, testing::IsEmpty());
  EXPECT_TRUE(to.encoder->weight.equal(at::zeros({3, 2})));
  EXPECT_EQ(to.named_parameters()["scale"].item<float>(), 1.0f);
  EXPECT_TRUE(to.named_buffers()["norm.running_mean"].equal(from.named_buffers()["norm.running_mean"]));
  options.ignored_keys = {"encoder", "head.0.weight", "norm.?"};
  EXPECT_THAT(std::string(LoadStateDict(to, other, options).message()),
              testing::AllOf(HasSubstr("1 mismatched: \"encoder.weight\""), testing::Not(HasSubstr("unexpected"))));
}

TEST(LoadStateDict, NamesThePrefixOfAWrapper) {
  Net from, to;
  Fill(from, 3);
  for (const std::string prefix :
       {"module.", "_orig_mod.", "model.", "_orig_mod.module.", "module._orig_mod.", "model._orig_mod.model.module."}) {
    const Value wrapped = WithPrefix(from, prefix);
    EXPECT_THAT(
        std::string(LoadStateDict(to, wrapped).message()),
        HasSubstr("; more keys fit without the prefix \"" + prefix + "\": set LoadStateDictOptions::remove_prefix"));
    EXPECT_EQ(FindPrefix(to, wrapped), prefix);
    EXPECT_EQ(LoadStateDict(to, wrapped, {.remove_prefix = prefix}), absl::OkStatus()) << prefix;
  }
  Value mixed = WithPrefix(from, "model.");
  mixed.Set("criterion.weight", at::ones({2}));
  EXPECT_EQ(FindPrefix(to, mixed), "model.") << "other modules may stand beside the model";
  EXPECT_EQ(FindPrefix(to, WithPrefix(from, "net.")), "");
  EXPECT_EQ(FindPrefix(to, StateDict(from)), "");
}

TEST(LoadStateDict, AModulesOwnNameIsNotAWrapper) {
  Net own;
  own.register_module("model", std::make_shared<Linear>(2, 3));
  EXPECT_EQ(FindPrefix(own, StateDict(own)), "");
  EXPECT_EQ(FindPrefix(own, WithPrefix(own, "model.")), "model.");
}

TEST(LoadStateDict, PointsAtTheStateDictInsideACheckpoint) {
  Net net;
  const absl::Status status = LoadStateDict(net, Value::Dict({{"epoch", 3}, {"state_dict", StateDict(net)}}));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("; its entry \"state_dict\" is a dict: is that the state dict?"));
  EXPECT_EQ(LoadStateDict(net, 3), absl::InvalidArgumentError("a state dict must be a dict, found int"));
}

TEST(LoadStateDict, AllowsAnOldStateDictWithoutNumBatchesTracked) {
  Net net;
  Value old = Value::OrderedDict();
  for (const auto& [key, tensor] : StateDict(net).entries()) {
    if (key.string_value() != "norm.num_batches_tracked") old.Set(key, tensor);
  }
  EXPECT_TRUE(LoadStateDict(net, old).ok());
  old.SetAttributes(StateDict(net).attributes());
  EXPECT_THAT(std::string(LoadStateDict(net, old).message()), HasSubstr("1 missing: \"norm.num_batches_tracked\""));
  // The form that Python saves from a DistributedDataParallel; its _metadata has the prefix too.
  Value metadata = Value::OrderedDict({{"", Value::Dict({{"version", 1}})}});
  for (const auto& [module, version] : GetDict(old.attributes(), "_metadata")->entries()) {
    metadata.Set("module." + module.string_value(), version);
  }
  old.SetAttributes(Value::Dict({{"_metadata", metadata}}));
  EXPECT_THAT(std::string(LoadStateDict(net, old, {.remove_prefix = "module."}).message()),
              HasSubstr("1 missing: \"norm.num_batches_tracked\""));
}

}  // namespace
}  // namespace lockstep::checkpoint
