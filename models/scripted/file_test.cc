#include "lockstep/models/scripted/file.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/models/scripted/testing/modules.h"

namespace lockstep::models::scripted {
namespace {

using checkpoint::testing::Folder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The bytes that LibTorch itself saves.
std::string Bytes(const torch::jit::Module& module) {
  std::ostringstream out;
  module.save(out);
  return out.str();
}

absl::Status LoadBytes(const Folder& folder, const std::string& bytes, const LoadOptions& options = {}) {
  folder.Write("net.ts", bytes);
  return Load(folder.path() + "/net.ts", options).status();
}

TEST(ScriptedFile, LoadsTheModuleThatWasSaved) {
  const Folder folder;
  const std::string path = folder.path() + "/net.ts";
  ScriptModule net(testing::Mlp());
  net->named_parameters()["last.bias"].set_requires_grad(false);
  net(testing::Batch(3, 1));
  net->eval();
  ASSERT_EQ(Save(path, net), absl::OkStatus());
  EXPECT_THAT(folder.Names(), ElementsAre("net.ts"));
  absl::StatusOr<ScriptModule> loaded = Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_FALSE((*loaded)->is_training());
  EXPECT_FALSE((*loaded)->named_parameters()["last.bias"].requires_grad());
  EXPECT_TRUE((*loaded)->named_parameters()["last.weight"].requires_grad());
  EXPECT_TRUE(checkpoint::Identical(checkpoint::StateDict(**loaded), checkpoint::StateDict(*net)));
  const at::Tensor x = testing::Batch(2, 2);
  EXPECT_TRUE(at::equal((*loaded)(x).toTensor(), net(x).toTensor()));
}

TEST(ScriptedFile, LoadsForAnotherMethod) {
  const Folder folder;
  LoadOptions options;
  options.script.method = "hidden";
  EXPECT_EQ(LoadBytes(folder, Bytes(testing::Mlp()), options), absl::OkStatus());
  options.script.method = "loss";
  EXPECT_EQ(LoadBytes(folder, Bytes(testing::Mlp()), options),
            absl::NotFoundError(absl::StrCat(
                folder.path(), "/net.ts: the module has no method \"loss\"; its methods: ", "forward, hidden")));
}

TEST(ScriptedFile, AStateDictLoadsIntoAnotherScriptedModule) {
  const Folder folder;
  const std::string path = folder.path() + "/state.pt";
  ScriptModule trained(testing::Mlp());
  trained(testing::Batch(3, 1));
  ASSERT_EQ(checkpoint::Save(path, checkpoint::StateDict(*trained)), absl::OkStatus());
  ScriptModule net(testing::Mlp());
  EXPECT_EQ(checkpoint::LoadStateDict(*net, *checkpoint::Load(path)), absl::OkStatus());
  EXPECT_TRUE(at::equal(net->jit().attr("norm").toModule().attr("running_mean").toTensor(),
                        trained->named_buffers()["norm.running_mean"]));
  ScriptModule other(testing::Branches());
  EXPECT_THAT(checkpoint::LoadStateDict(*other, *checkpoint::Load(path)).message(),
              HasSubstr("does not fit the module Branches (3 keys): 3 missing: \"a\", \"b\", \"c\""));
}

// ---- Files that are no module to train.

TEST(ScriptedFile, AMissingFileAndAFolderAreNamed) {
  EXPECT_THAT(Load("/no/such.ts").status(), absl::NotFoundError("/no/such.ts: open: No such file or directory"));
  const Folder folder;
  const absl::Status status = Load(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), StartsWith(folder.path() + ": "));
}

TEST(ScriptedFile, ACheckpointIsNamed) {
  const Folder folder;
  const std::string path = folder.path() + "/state.pt";
  ScriptModule net(testing::Mlp());
  ASSERT_EQ(checkpoint::Save(path, checkpoint::StateDict(*net)), absl::OkStatus());
  EXPECT_EQ(Load(path).status(),
            absl::InvalidArgumentError(path + ": a file of torch.save, which has tensors but no code; load it by "
                                              "checkpoint::Load, or export the module in Python by "
                                              "torch.jit.script(net).save(path)"));
}

TEST(ScriptedFile, FilesOfOtherKindsAreNamed) {
  const Folder folder;
  EXPECT_THAT(LoadBytes(folder, "").message(), HasSubstr("the file is empty"));
  EXPECT_THAT(LoadBytes(folder, "<!DOCTYPE html><html></html>").message(), HasSubstr("a web page"));
  EXPECT_THAT(LoadBytes(folder, "version https://git-lfs.github.com/spec/v1\n").message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(LoadBytes(folder, std::string("\x08\0\0\0\0\0\0\0{}      ", 16)).message(), HasSubstr("safetensors"));
  EXPECT_EQ(LoadBytes(folder, "import torch\n").code(), absl::StatusCode::kDataLoss);
}

TEST(ScriptedFile, AModuleWithoutParametersIsNamed) {
  const Folder folder;
  torch::jit::Module module = testing::Mlp();
  module.eval();
  EXPECT_THAT(LoadBytes(folder, Bytes(torch::jit::freeze(module))),
              absl::InvalidArgumentError(absl::StrCat(
                  folder.path(), "/net.ts: the module has no parameters to train; torch.jit.freeze makes them ",
                  "constants, so export the module in Python by torch.jit.script(net).save(path)")));
}

TEST(ScriptedFile, EveryTruncationIsAnError) {
  const Folder folder;
  const std::string bytes = Bytes(testing::Averaging());
  for (size_t size = 0; size < bytes.size(); size += 37) {
    const absl::Status status = LoadBytes(folder, bytes.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << ": " << status;
    EXPECT_THAT(status.message(), AllOf(StartsWith(folder.path() + "/net.ts: "), Not(HasSubstr("\n"))));
  }
}

// A flipped bit is an error, or it lies where it changes nothing, such as in padding.
TEST(ScriptedFile, AFlippedBitNeverChangesTheModule) {
  const Folder folder;
  const std::string path = folder.path() + "/net.ts";
  const torch::jit::Module module = testing::Averaging();
  const std::string bytes = Bytes(module);
  int errors = 0;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    folder.Write("net.ts", damaged);
    absl::StatusOr<ScriptModule> loaded = Load(path);
    if (!loaded.ok()) {
      ++errors;
      continue;
    }
    EXPECT_TRUE(at::equal((*loaded)->named_parameters()["weight"], module.attr("weight").toTensor())) << at;
    const at::Tensor x = testing::Batch(2, 1);
    EXPECT_TRUE(at::equal((*loaded)(x).toTensor(), ScriptModule(testing::Averaging())(x).toTensor())) << at;
  }
  EXPECT_GT(errors, static_cast<int>(bytes.size()) / 12);
}

TEST(ScriptedFile, WithoutVerificationLibTorchLoadsDamagedWeights) {
  const Folder folder;
  const torch::jit::Module module = testing::Averaging();
  std::string bytes = Bytes(module);
  const at::Tensor weight = module.attr("weight").toTensor();
  const size_t at = bytes.find(std::string(static_cast<const char*>(weight.const_data_ptr()), weight.nbytes()));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  EXPECT_THAT(LoadBytes(folder, bytes).message(), HasSubstr("the file is damaged"));
  LoadOptions options;
  options.verify = false;
  EXPECT_EQ(LoadBytes(folder, bytes, options), absl::OkStatus());
}

// ---- Saving.

TEST(ScriptedFile, AFailedSaveLeavesThePreviousFile) {
  const Folder folder;
  folder.Write("net.ts", "before");
  torch::jit::Module module = testing::Mlp();
  // LibTorch cannot save a future.
  const auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  module.register_attribute("pending", c10::FutureType::create(c10::IntType::get()), future);
  const ScriptModule net(module);
  const absl::Status status = Save(folder.path() + "/net.ts", net);
  EXPECT_THAT(status.message(), StartsWith(folder.path() + "/net.ts: "));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(folder.Read("net.ts"), "before");
  EXPECT_THAT(folder.Names(), ElementsAre("net.ts"));
}

TEST(ScriptedFile, AnErrorOfTheSystemNamesTheFile) {
  const ScriptModule net(testing::Mlp());
  EXPECT_EQ(Save("/no/such/folder/net.ts", net).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Save("/no/such/folder/net.ts", net).message(), StartsWith("/no/such/folder/net.ts: "));
}

}  // namespace
}  // namespace lockstep::models::scripted
