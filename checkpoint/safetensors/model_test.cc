#include "lockstep/checkpoint/safetensors/model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Layer : torch::nn::Module {
  explicit Layer(at::Tensor shared) {
    weight = register_parameter("weight", std::move(shared));
    bias = register_parameter("bias", at::zeros({weight.size(0)}));
  }
  at::Tensor weight, bias;
};

// The module of testdata/make_golden.py: the decoder's weight is the encoder's.
struct Tied : torch::nn::Module {
  Tied() : torch::nn::Module("Tied") {
    encoder = register_module("encoder", std::make_shared<Layer>(at::zeros({3, 2})));
    decoder = register_module("decoder", std::make_shared<Layer>(encoder->weight));
  }
  void Fill() {
    const c10::NoGradGuard no_grad;
    encoder->weight.copy_(at::arange(6.0).reshape({3, 2}));
    encoder->bias.fill_(1);
    decoder->bias.fill_(2);
  }
  std::shared_ptr<Layer> encoder, decoder;
};

std::string TestPath(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(SafetensorsModel, TiedWeightsAreWrittenOnceAsPythonWritesThem) {
  Tied tied;
  tied.Fill();
  const std::string path = TestPath("tied.safetensors");
  ASSERT_EQ(SaveSafetensorsModel(path, tied), absl::OkStatus());
  EXPECT_EQ(Contents(path), Contents("checkpoint/testdata/tied.safetensors"));
  EXPECT_THAT(LoadSafetensors(path)->metadata, ElementsAre(Pair("encoder.weight", "decoder.weight")));
  ASSERT_EQ(SaveSafetensorsModel(path, tied, {{"encoder.weight", "mine"}}), absl::OkStatus());
  EXPECT_THAT(LoadSafetensors(path)->metadata, ElementsAre(Pair("encoder.weight", "mine")));
}

TEST(SafetensorsModel, LoadingFillsAllNames) {
  Tied tied, expected;
  expected.Fill();
  LoadedKeys keys;
  ASSERT_EQ(LoadSafetensorsModel("checkpoint/testdata/tied.safetensors", tied, {.keys = &keys}), absl::OkStatus());
  EXPECT_TRUE(Identical(StateDict(tied), StateDict(expected)));
  EXPECT_TRUE(tied.decoder->weight.is_alias_of(tied.encoder->weight));
  EXPECT_THAT(keys.missing, testing::IsEmpty());
}

TEST(SafetensorsModel, EitherNameMayBeInTheFile) {
  Tied tied;
  const std::string path = TestPath("either.safetensors");
  const at::Tensor weight = at::arange(6.0, at::kFloat).reshape({3, 2});
  for (const char* name : {"encoder.weight", "decoder.weight"}) {
    const Value file =
        Value::Dict({{name, weight}, {"encoder.bias", at::zeros({3})}, {"decoder.bias", at::zeros({3})}});
    ASSERT_EQ(SaveSafetensors(path, file), absl::OkStatus());
    Tied other;
    EXPECT_EQ(LoadSafetensorsModel(path, other), absl::OkStatus());
    EXPECT_TRUE(other.encoder->weight.equal(weight));
  }
  ASSERT_EQ(SaveSafetensors(path, Value::Dict({{"encoder.bias", at::zeros({3})}})), absl::OkStatus());
  EXPECT_THAT(std::string(LoadSafetensorsModel(path, tied).message()),
              HasSubstr("3 missing: \"encoder.weight\", \"decoder.weight\", \"decoder.bias\""));
}

TEST(SafetensorsModel, PartsOfOneMemoryAreSavedApartUnlessTheyOverlap) {
  const at::Tensor memory = at::arange(6.0, at::kFloat);
  torch::nn::Module parts, overlapping;
  parts.register_buffer("a", memory.narrow(0, 0, 3));
  parts.register_buffer("b", memory.narrow(0, 3, 3));
  const std::string path = TestPath("parts.safetensors");
  ASSERT_EQ(SaveSafetensorsModel(path, parts), absl::OkStatus());
  EXPECT_EQ(LoadSafetensors(path)->tensors.size(), 2);
  EXPECT_EQ(LoadSafetensorsModel(path, parts), absl::OkStatus());
  torch::nn::Module inside;
  inside.register_buffer("a", memory.narrow(0, 2, 1));
  inside.register_buffer("b", memory.narrow(0, 1, 3));
  ASSERT_EQ(SaveSafetensorsModel(path, inside), absl::OkStatus());
  EXPECT_TRUE(LoadSafetensors(path)->tensors.Find("b")->tensor().equal(memory.narrow(0, 1, 3)));
  EXPECT_FALSE(LoadSafetensors(path)->tensors.Find("a"));
  overlapping.register_buffer("a", memory.narrow(0, 0, 4));
  overlapping.register_buffer("b", memory.narrow(0, 3, 3));
  EXPECT_EQ(
      SaveSafetensorsModel(path, overlapping),
      absl::InvalidArgumentError(path + ": \"a\", \"b\" share memory, of which none of them is the whole; clone() "
                                        "them, or use Save"));
}

}  // namespace
}  // namespace lockstep::checkpoint
