#include "lockstep/models/resnet.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/models/image_classifier.h"
#include "lockstep/models/registry.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;

// A line of a file that testdata/make_golden.py wrote.
struct Golden {
  std::string name, shape, sum;
};

std::vector<Golden> ReadGolden(const std::string& arch) {
  std::ifstream file("models/testdata/" + arch + ".txt");
  std::vector<Golden> golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    fields >> golden.emplace_back().name >> golden.back().shape >> golden.back().sum;
  }
  return golden;
}

std::string ShapeOf(const at::Tensor& tensor) { return tensor.dim() ? absl::StrJoin(tensor.sizes(), ",") : "scalar"; }

// Sums agree to what the last bits of the vector instructions that a processor has may change.
void ExpectAsGolden(const at::Tensor& tensor, const Golden& golden) {
  EXPECT_EQ(ShapeOf(tensor), golden.shape) << golden.name;
  EXPECT_EQ(golden.sum == "-", tensor.scalar_type() == at::kLong) << golden.name;
  if (golden.sum == "-") return;
  EXPECT_NEAR(tensor.sum(at::kDouble).item<double>(), std::stod(golden.sum), 2e-3) << golden.name;
}

void ExpectLikeTorchvision(const std::string& arch, ResNet (*make)(int64_t, NormFactory), int64_t parameters) {
  torch::manual_seed(11);
  ResNet net = make(1000, BatchNorm);
  int64_t count = 0;
  for (const at::Tensor& parameter : net->parameters()) count += parameter.numel();
  EXPECT_EQ(count, parameters);
  const std::vector<Golden> golden = ReadGolden(arch);
  const checkpoint::Value state = checkpoint::StateDict(*net);
  ASSERT_EQ(state.size() + 1, golden.size());
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state.entries()[i].first.string_value(), golden[i].name);
    ExpectAsGolden(state.entries()[i].second.tensor(), golden[i]);
  }
  net->eval();
  const torch::NoGradGuard no_grad;
  ExpectAsGolden(net(torch::linspace(-1, 1, 2 * 3 * 64 * 64).view({2, 3, 64, 64})), golden.back());
}

TEST(ResNet, Of18LayersIsTorchvisions) { ExpectLikeTorchvision("resnet18", ResNet18, 11689512); }
TEST(ResNet, Of34LayersIsTorchvisions) { ExpectLikeTorchvision("resnet34", ResNet34, 21797672); }
TEST(ResNet, Of50LayersIsTorchvisions) { ExpectLikeTorchvision("resnet50", ResNet50, 25557032); }

TEST(ResNet, WithGroupsIsTorchvisionsResNeXt) { ExpectLikeTorchvision("resnext50_32x4d", ResNeXt50_32x4d, 25028904); }

TEST(ResNet, HasAsManyLogitsAsClassesForAnySizeOfImage) {
  ResNet net = ResNet18(10);
  EXPECT_EQ(net(torch::zeros({4, 3, 32, 32})).sizes(), (std::vector<int64_t>{4, 10}));
  EXPECT_EQ(net(torch::zeros({1, 3, 50, 71})).sizes(), (std::vector<int64_t>{1, 10}));
}

TEST(ResNet, TakesEveryNormalisationLayerFromItsFactory) {
  std::vector<int64_t> channels;
  ResNet net = ResNet18(10, [&](int64_t n) {
    channels.push_back(n);
    return torch::nn::AnyModule(torch::nn::GroupNorm(torch::nn::GroupNormOptions(8, n)));
  });
  EXPECT_EQ(absl::StrJoin(channels, " "), "64 64 64 64 64 128 128 128 128 128 256 256 256 256 256 512 512 512 512 512");
  EXPECT_TRUE(net->buffers().empty());  // BatchNorm would have some
  EXPECT_TRUE(net->named_parameters().contains("layer2.0.downsample.1.weight"));
  EXPECT_TRUE(net(torch::zeros({2, 3, 32, 32})).isfinite().all().item<bool>());
}

TEST(ResNet, StartsEachBlockFromNothingIfAsked) {
  for (const bool bottleneck : {false, true}) {
    ResNetOptions options;
    options.bottleneck = bottleneck;
    options.zero_init_residual = true;
    const ResNet net(options);
    for (const auto& parameter : net->named_parameters()) {
      const absl::string_view last = bottleneck ? ".bn3.weight" : ".bn2.weight";
      const bool zero = absl::EndsWith(parameter.key(), last) || absl::EndsWith(parameter.key(), "bias");
      if (parameter.key() == "fc.bias") continue;
      EXPECT_EQ(parameter.value().eq(0).all().item<bool>(), zero) << parameter.key();
    }
  }
}

TEST(ResNet, LeavesANormalisationLayerWithoutWeightAsItIs) {
  ResNetOptions options;
  options.zero_init_residual = true;
  options.norm = [](int64_t) { return torch::nn::AnyModule(torch::nn::Identity()); };
  ResNet net(options);
  EXPECT_EQ(net(torch::zeros({1, 3, 32, 32})).sizes(), (std::vector<int64_t>{1, 1000}));
}

// Returns the heights of the norms' inputs in a net with these options, for an image of 64 by 64.
std::string Heights(ResNetOptions options) {
  struct Probe : torch::nn::Module {
    explicit Probe(std::vector<int64_t>* heights) : heights(heights) {}
    at::Tensor forward(const at::Tensor& x) {
      heights->push_back(x.size(2));
      return x;
    }
    std::vector<int64_t>* heights;
  };
  std::vector<int64_t> heights;
  options.norm = [&](int64_t) { return torch::nn::AnyModule(std::make_shared<Probe>(&heights)); };
  ResNet net(options);
  net(torch::zeros({1, 3, 64, 64}));
  return absl::StrJoin(heights, " ");
}

TEST(ResNet, DilatesInsteadOfHalvingIfAsked) {
  ResNetOptions options{{1, 1, 1, 1}, true};
  // The stem; then of each block three convolutions and downsample.
  EXPECT_EQ(Heights(options), "32 16 16 16 16 16 8 8 8 8 4 4 4 4 2 2 2");
  options.replace_stride_with_dilation = {false, true, true};
  EXPECT_EQ(Heights(options), "32 16 16 16 16 16 8 8 8 8 8 8 8 8 8 8 8");
}

TEST(ResNet, SaysThatBasicBlocksHaveNeitherGroupsNorDilation) {
  const auto expect_error = [](const BlockOptions& options, const std::string& found) {
    try {
      BasicBlock block(options);
      ADD_FAILURE() << found;
    } catch (const c10::ValueError& error) {
      EXPECT_EQ(error.what_without_backtrace(),
                "BasicBlock: expected groups 1, width_per_group 64 and dilation 1, found " + found);
    }
  };
  expect_error({64, 64, 1, BatchNorm, 32, 4}, "32, 4 and 1");
  expect_error({64, 64, 1, BatchNorm, 1, 64, false, 2}, "1, 64 and 2");
}

TEST(ResNet, ComputesInBfloat16) {
  ResNet net = ResNet18(10);
  net->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor images = torch::randn({2, 3, 64, 64}), expected = net(images);
  net->to(at::kBFloat16);
  const at::Tensor logits = net(images.to(at::kBFloat16));
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  EXPECT_LT((logits - expected).norm().item<double>() / expected.norm().item<double>(), 3e-2);
}

TEST(ResNet, EveryParameterGetsAGradient) {
  for (const auto& make : {ResNet18, ResNet50}) {
    ResNet net = make(10, BatchNorm);
    net(torch::randn({2, 3, 32, 32})).square().sum().backward();
    for (const auto& parameter : net->named_parameters()) {
      EXPECT_GT(parameter.value().grad().abs().sum().item<double>(), 0) << parameter.key();
    }
  }
}

TEST(ResNet, CloneIsEqualAndApart) {
  ResNet net = ResNet18(10);
  net->eval();
  ResNet copy(std::dynamic_pointer_cast<ResNetImpl>(net->clone()));
  const torch::NoGradGuard no_grad;
  const at::Tensor images = torch::randn({2, 3, 32, 32}), before = net(images);
  EXPECT_TRUE(torch::equal(copy(images), before));
  for (at::Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_TRUE(torch::equal(net(images), before));
  EXPECT_TRUE(torch::equal(copy(images), torch::zeros({2, 10})));
}

TEST(ResNet, DropsFeaturesInTrainingOnly) {
  ResNet net = ResNet18(10);
  const torch::NoGradGuard no_grad;
  const at::Tensor images = torch::randn({4, 3, 32, 32});
  EXPECT_TRUE(torch::equal(net(images), net(images)));
  net->set_dropout(0.5);
  ResNet copy(std::dynamic_pointer_cast<ResNetImpl>(net->clone()));
  for (ResNet& dropping : std::vector<ResNet>{net, copy})
    EXPECT_FALSE(torch::equal(dropping(images), dropping(images)));
  net->eval();
  EXPECT_TRUE(torch::equal(net(images), net(images)));
}

TEST(Registry, ListsTheNamesOfTorchvision) {
  EXPECT_THAT(Names(), ElementsAre("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
                                   "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"));
}

TEST(Registry, MakesTheNetworkOfThatName) {
  torch::manual_seed(5);
  ResNet expected = ResNet18(10);
  torch::manual_seed(5);
  absl::StatusOr<ImageClassifier> net = Make("resnet18", 10);
  ASSERT_TRUE(net.ok()) << net.status();
  EXPECT_EQ((*net)->named_parameters().keys(), expected->named_parameters().keys());
  EXPECT_EQ((*net)->named_buffers().keys(), expected->named_buffers().keys());
  const at::Tensor images = torch::rand({2, 3, 32, 32});
  EXPECT_TRUE(torch::equal((*net)(images), expected(images)));
}

TEST(Registry, TakesNormalisationLayersFromTheFactory) {
  const auto group_norm = [](int64_t channels) {
    return torch::nn::AnyModule(torch::nn::GroupNorm(torch::nn::GroupNormOptions(8, channels)));
  };
  absl::StatusOr<ImageClassifier> net = Make("resnet18", 10, group_norm);
  ASSERT_TRUE(net.ok()) << net.status();
  EXPECT_TRUE((*net)->buffers().empty());
}

TEST(Registry, SaysWhichNamesThereAre) {
  EXPECT_EQ(Make("resnet19").status(),
            absl::InvalidArgumentError(
                "models: expected one of resnet18, resnet34, resnet50, resnet101, resnet152, resnext50_32x4d, "
                "resnext101_32x8d, resnext101_64x4d, wide_resnet50_2, wide_resnet101_2, found \"resnet19\""));
}

TEST(Registry, RefusesToMakeWhatCannotBeMade) {
  EXPECT_EQ(Make("resnet50", 0).status(),
            absl::InvalidArgumentError("models: resnet50: expected at least 1 class, found 0"));
  for (const double dropout : {1.0, -0.1}) {
    EXPECT_EQ(Make("resnet18", 10, BatchNorm, dropout).status(),
              absl::InvalidArgumentError(absl::StrCat(
                  "models: resnet18: expected a dropout rate of at least 0 and less than 1, found ", dropout)));
  }
  const auto broken = [](int64_t channels) -> torch::nn::AnyModule { C10_THROW_ERROR(ValueError, "no such layer"); };
  EXPECT_EQ(Make("resnet18", 10, broken).status(), absl::InvalidArgumentError("models: resnet18: no such layer"));
}

// A network whose own parameter, buffer and training flag matter to its forward.
struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
  ScaledImpl() { reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(2, 3));
    scale = register_parameter("scale", torch::full({1}, 2.0));
    offset = register_buffer("offset", torch::ones({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear(x) * scale;
    return is_training() ? y : y + offset;
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor scale, offset;
};
TORCH_MODULE(Scaled);

TEST(ImageClassifier, HasTheNamesAndTensorsOfItsNetwork) {
  Scaled scaled;
  ImageClassifier net{torch::nn::AnyModule(scaled)};
  const auto parameters = net->named_parameters();
  EXPECT_EQ(parameters.keys(), scaled->named_parameters().keys());
  EXPECT_EQ(net->named_buffers().keys(), scaled->named_buffers().keys());
  for (const auto& parameter : scaled->named_parameters()) {
    EXPECT_TRUE(parameters[parameter.key()].is_same(parameter.value())) << parameter.key();
  }
}

TEST(ImageClassifier, ForwardsAndTrainsLikeItsNetwork) {
  Scaled scaled;
  ImageClassifier net{torch::nn::AnyModule(scaled)};
  const at::Tensor x = torch::rand({4, 2}), y = net(x);
  EXPECT_TRUE(torch::equal(y, scaled->linear(x) * 2));
  net->eval();
  EXPECT_TRUE(torch::equal(net(x), y + 1));
  EXPECT_FALSE(scaled->linear->is_training());
  net->to(at::kDouble);
  EXPECT_EQ(net(x.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(ImageClassifier, CloneIsEqualAndApart) {
  ImageClassifier net{torch::nn::AnyModule(Scaled())};
  net->eval();
  ImageClassifier copy(std::dynamic_pointer_cast<ImageClassifierImpl>(net->clone()));
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::rand({4, 2}), before = net(x);
  EXPECT_TRUE(torch::equal(copy(x), before));
  for (at::Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_TRUE(torch::equal(net(x), before));
  EXPECT_TRUE(torch::equal(copy(x), torch::ones({4, 3})));
}

TEST(ImageClassifier, GivesItsNetworkByType) {
  const ImageClassifier net{torch::nn::AnyModule(ResNet18(10))};
  EXPECT_EQ(net->network().get<ResNet>()->parameters().size(), net->parameters().size());
}

}  // namespace
}  // namespace lockstep::models
