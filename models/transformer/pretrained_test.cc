#include "lockstep/models/transformer/pretrained.h"

#include <ATen/ATen.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/models/transformer/testing/tiny.h"

namespace lockstep::models {
namespace {

using checkpoint::Value;
using checkpoint::testing::Folder;
using Names = std::vector<std::string>;

CausalLM Make(const CausalLMConfig& config) {
  CausalLM net(config);
  testing::Disturb(*net);
  return net;
}

CausalLM Loaded(const Folder& folder) {
  auto net = LoadPretrained(folder.path());
  ThrowIfError(net.status());
  return *net;
}

// The error of loading, without the folder's path.
std::string Error(const Folder& folder) {
  return absl::StrReplaceAll(LoadPretrained(folder.path()).status().ToString(), {{folder.path() + "/", ""}});
}

void ExpectSame(const CausalLM& found, const CausalLM& expected) {
  const auto parameters = found->named_parameters();
  for (const auto& item : expected->named_parameters())
    EXPECT_TRUE(parameters[item.key()].equal(item.value())) << item.key();
  EXPECT_EQ(ConfigJson(found->config()), ConfigJson(expected->config()));
}

// Saves the tensors of a folder again as `change` leaves them.
template <typename F>
void Rewrite(const Folder& folder, F change) {
  const std::string path = folder.path() + "/model.safetensors";
  const auto file = checkpoint::LoadSafetensors(path);
  ThrowIfError(file.status());
  Value tensors = Value::Dict();
  for (const auto& [name, tensor] : file->tensors.entries()) change(name.string_value(), tensor.tensor(), tensors);
  ThrowIfError(checkpoint::SaveSafetensors(path, tensors));
}

TEST(Pretrained, SurvivesAFolder) {
  for (const CausalLMConfig& config : testing::TinyConfigs()) {
    const Folder folder;
    const CausalLM net = Make(config);
    ASSERT_TRUE(SavePretrained(folder.path(), *net, config).ok());
    EXPECT_EQ(folder.Names(), Names({"config.json", "model.safetensors"}));
    const CausalLM again = Loaded(folder);
    ExpectSame(again, net);
    const std::string bytes = folder.Read("model.safetensors");
    ASSERT_TRUE(SavePretrained(folder.path(), *again, again->config()).ok());
    EXPECT_EQ(folder.Read("model.safetensors"), bytes);
  }
}

TEST(Pretrained, SurvivesShardsAndReplacesThem) {
  const Folder folder;
  const CausalLM net = Make(testing::TinyConfigs()[1]);
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config(), 30000).ok());
  EXPECT_EQ(folder.Names(),
            Names({"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                   "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  ExpectSame(Loaded(folder), net);
  // Tensors that are larger have a file of their own.
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config(), 1).ok());
  EXPECT_EQ(folder.Names().size(), 2 + net->parameters().size());
  ExpectSame(Loaded(folder), net);
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  EXPECT_EQ(folder.Names(), Names({"config.json", "model.safetensors"}));
}

TEST(Pretrained, TakesNamesWithoutPrefixAndOldBuffers) {
  const Folder folder;
  const CausalLM net = Make(testing::TinyConfigs()[0]);
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  Rewrite(folder, [](const std::string& name, const at::Tensor& tensor, Value& to) {
    const std::string rest = name.substr(std::string("transformer.").size());
    to.Set(rest, tensor);
    if (rest == "wte.weight") to.Set("lm_head.weight", tensor.clone());
    to.Set("h.0.attn.bias", at::ones({1}, at::kByte));
  });
  ExpectSame(Loaded(folder), net);
}

TEST(Pretrained, ConvertsOnlyIfAsked) {
  const Folder folder;
  CausalLM net = Make(testing::TinyConfigs()[2]);
  net->to(at::kBFloat16);
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  EXPECT_EQ(Error(folder),
            "INVALID_ARGUMENT: model.safetensors: \"model.embed_tokens.weight\" is BFloat16, expected Float: pass a "
            "dtype to convert it");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto loaded = LoadPretrained(folder.path(), dtype);
    ASSERT_TRUE(loaded.ok());
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_EQ((*loaded)->parameters()[i].scalar_type(), dtype);
      EXPECT_TRUE((*loaded)->parameters()[i].equal(net->parameters()[i].to(dtype)));
    }
  }
}

TEST(Pretrained, NamesWhatDoesNotFit) {
  const Folder folder;
  const CausalLM net = Make(testing::TinyConfigs()[0]);
  EXPECT_EQ(Error(folder).substr(0, 24), "NOT_FOUND: config.json: ");
  folder.Write("config.json", ConfigJson(net->config()));
  EXPECT_EQ(LoadPretrained(folder.path()).status().message(),
            folder.path() + ": has neither model.safetensors nor model.safetensors.index.json");
  folder.Write("model.safetensors", "not tensors");
  EXPECT_EQ(Error(folder).substr(0, 29), "DATA_LOSS: model.safetensors:");
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  Rewrite(folder, [](const std::string& name, const at::Tensor& tensor, Value& to) {
    to.Set(name == "transformer.wpe.weight" ? "wqe.weight" : name, tensor);
  });
  EXPECT_EQ(Error(folder),
            "INVALID_ARGUMENT: model.safetensors: missing: \"transformer.wpe.weight\"; unexpected: "
            "\"transformer.wqe.weight\"");
  Rewrite(folder, [](const std::string& name, const at::Tensor& tensor, Value& to) {
    to.Set(name == "wqe.weight" ? "wpe.weight" : name, name == "wqe.weight" ? tensor.clone().narrow(0, 0, 9) : tensor);
  });
  EXPECT_EQ(Error(folder).substr(0, 37), "INVALID_ARGUMENT: model.safetensors: ");
  EXPECT_NE(Error(folder).find("\"transformer.wpe.weight\" ([9, 32], the module has [24, 32])"), std::string::npos)
      << Error(folder);
}

TEST(Pretrained, RefusesAHeadThatIsNotTied) {
  const Folder folder;
  const CausalLM net = Make(testing::TinyConfigs()[0]);
  ASSERT_TRUE(SavePretrained(folder.path(), *net, net->config()).ok());
  Rewrite(folder, [](const std::string& name, const at::Tensor& tensor, Value& to) {
    to.Set(name, tensor);
    if (name == "transformer.wte.weight") to.Set("lm_head.weight", tensor + 1);
  });
  EXPECT_EQ(Error(folder),
            "INVALID_ARGUMENT: model.safetensors: \"lm_head.weight\" differs from the embedding, but "
            "tie_word_embeddings is true");
}

TEST(Pretrained, NamesWhatIsWrongInAnIndex) {
  const Folder folder;
  folder.Write("config.json", ConfigJson(testing::TinyConfigs()[0]));
  const auto error = [&](const std::string& index) {
    folder.Write("model.safetensors.index.json", index);
    return Error(folder);
  };
  EXPECT_EQ(error("{"), "DATA_LOSS: model.safetensors.index.json: not valid JSON");
  EXPECT_EQ(error("{}"), "DATA_LOSS: model.safetensors.index.json: field \"weight_map\" is missing");
  EXPECT_EQ(error(R"({"weight_map": {}})"), "DATA_LOSS: model.safetensors.index.json: weight_map names no file");
  EXPECT_EQ(error(R"({"weight_map": {"wte.weight": "../../etc/x.safetensors"}})"),
            "DATA_LOSS: model.safetensors.index.json: wte.weight is in \"../../etc/x.safetensors\", expected a "
            ".safetensors file of this folder");
  EXPECT_EQ(error(R"({"weight_map": {"wte.weight": "a.safetensors"}})").substr(0, 25), "NOT_FOUND: a.safetensors:");
  std::ofstream(folder.path() + "/model.safetensors.index.json").seekp(64 << 20).put('}');
  EXPECT_EQ(Error(folder), "DATA_LOSS: model.safetensors.index.json: has 67108865 bytes, expected at most 67108864");
}

TEST(Pretrained, SavesOnlyTheConfigsModel) {
  const Folder folder;
  const CausalLM net = Make(testing::TinyConfigs()[0]);
  CausalLMConfig config = net->config();
  config.vocab_size = 62;
  EXPECT_EQ(SavePretrained(folder.path(), *net, config).message(),
            "the module's parameters are not the config's: \"transformer.wte.weight\" differ");
  EXPECT_EQ(SavePretrained(folder.path(), *net, net->config(), 0).message(),
            "max_shard_bytes is 0, expected at least 1");
  EXPECT_EQ(folder.Names(), Names());
}

}  // namespace
}  // namespace lockstep::models
