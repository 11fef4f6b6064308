// The programs as a user runs them.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/examples/program/testing/same_bits.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using launch::testing::ReadFile;
using testing::ExpectError;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Program;
using testing::RunProgram;
using ::testing::StartsWith;

// A Llama with grouped-query attention.
constexpr char kConfig[] =
    R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})";

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// A folder with config.json.
std::string ModelFolder(const std::string& config = kConfig) {
  std::string folder = NewFolder();
  Write(folder + "config.json", config);
  return folder;
}

const std::string& Text() {
  static const auto* const path = [] {
    auto* const file = new std::string(NewFolder() + "text.txt");
    std::string text;
    for (int i = 0; i < 400; ++i) absl::StrAppend(&text, "and ", i * i, " sheep went over the hill\n");
    Write(*file, text);
    return file;
  }();
  return *path;
}

std::vector<std::string> Command(const std::string& out, const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv("TRAIN"),          "--data=" + Text(), "--steps=48",
                                      "--batch_size=8",         "--block=32",       "--save_every=8",
                                      "--checkpoint_dir=" + out};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// Trains, and returns the bytes of model.safetensors.
std::string Train(const std::string& out, const std::vector<std::string>& flags) {
  int code = -1;
  const std::string output = RunProgram(Command(out, flags), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("step    48   loss"));
  return ReadFile(out + "model.safetensors");
}

// One run on one rank for all tests.
class Gpt : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = "--model=" + ModelFolder();
    folder_ = NewFolder();
    quiet_ = Train(folder_, {model_, "--nproc_per_node=1"});
  }
  inline static std::string model_, folder_, quiet_;
};

TEST_F(Gpt, WritesTheSameModelOnAnyNumberOfRanksShardedOrNot) {
  EXPECT_GT(quiet_.size(), 100000);
  EXPECT_EQ(Train(NewFolder(), {model_, "--nproc_per_node=3"}), quiet_);
  for (const char* ranks : {"--nproc_per_node=1", "--nproc_per_node=3"}) {
    EXPECT_EQ(Train(NewFolder(), {model_, "--shard", ranks}), quiet_);
  }
  EXPECT_EQ(Train(NewFolder(), {model_, "--shard", "--recompute", "--nproc_per_node=2"}), quiet_);
}

TEST_F(Gpt, ComputesInBfloat16AndComparesWithSuchProducts) {
  const std::string out = NewFolder();
  int code = -1;
  const std::string output = RunProgram(Command(out, {model_, "--bf16", "--nproc_per_node=1"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr(" % of the machine's bfloat16 products"));
  EXPECT_NE(ReadFile(out + "model.safetensors"), quiet_);
}

// They share no memory, so a layer is gathered when it is used.
TEST_F(Gpt, WritesTheSameModelOnTwoHosts) {
  for (const char* shard : {"--shard=false", "--shard"}) {
    const std::string out = NewFolder();
    int code = -1;
    const std::string output = testing::RunOnTwoHosts(2, Command(out, {model_, shard}), &code);
    EXPECT_EQ(code, 0) << output;
    EXPECT_THAT(output, HasSubstr("In the beginning "));
    EXPECT_EQ(ReadFile(out + "model.safetensors"), quiet_) << output;
  }
}

// Without a folder nothing has gathered the parameters before.
TEST_F(Gpt, WritesTheSameTextOnTwoHostsWithoutAFolder) {
  int code = -1;
  const std::string text = RunProgram({getenv("GENERATE"), "--model=" + folder_, "--tokens=100"}, &code);
  const std::string output = testing::RunOnTwoHosts(2, Command("", {model_, "--shard"}), &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr(text));
}

TEST_F(Gpt, GoesOnWithTheSameBitsWhenARankDies) {
  for (const char* shard : {"--shard=false", "--shard"}) {
    const std::string out = NewFolder();
    Program program(Command(out, {model_, shard, "--nproc_per_node=3"}));
    ASSERT_TRUE(program.AwaitText("step    10 ")) << program.Output();
    kill(program.Ranks()[0], SIGKILL);
    EXPECT_EQ(program.Wait(), 0) << program.Output();
    EXPECT_THAT(program.Output(), HasSubstr("was killed by signal 9 (SIGKILL); generation "));
    EXPECT_EQ(ReadFile(out + "model.safetensors"), quiet_) << program.Output();
  }
}

TEST_F(Gpt, ResumesOnAnotherNumberOfRanks) {
  for (const char* shard : {"--shard=false", "--shard"}) {
    const std::string out = NewFolder();
    Program program(Command(out, {model_, shard, "--nproc_per_node=2"}));
    ASSERT_TRUE(program.AwaitText("step    10 ")) << program.Output();
    kill(program.pid(), SIGTERM);
    program.Wait();
    EXPECT_EQ(Train(out, {model_, shard, "--nproc_per_node=3"}), quiet_);
  }
}

TEST_F(Gpt, SaysOnceThatTheNewestCheckpointIsDamaged) {
  const std::string out = NewFolder();
  std::filesystem::copy(folder_, out);
  std::filesystem::resize_file(out + "step_00000048.pt", 1000);
  int code = -1;
  const std::string output = RunProgram(Command(out, {model_, "--nproc_per_node=2"}), &code);
  EXPECT_EQ(code, 0) << output;
  const std::string begin = "the newest checkpoint is damaged, so step 40 is used: " + out;
  EXPECT_THAT(output, StartsWith(begin));
  EXPECT_THAT(output, HasSubstr("/step_00000048.pt: zip archive: "));
  EXPECT_THAT(output.substr(begin.size()), Not(HasSubstr("the newest checkpoint")));
  EXPECT_EQ(ReadFile(out + "model.safetensors"), quiet_);
}

TEST_F(Gpt, GeneratesTheSameTextFromTheModelAndFromTheCheckpoint) {
  const auto text = [&](const std::string& model, const std::string& seed) {
    int code = -1;
    return RunProgram({getenv("GENERATE"), "--model=" + model, "--tokens=40", "--seed=" + seed}, &code);
  };
  EXPECT_EQ(text(folder_, "1"), text(folder_ + "step_00000048.pt", "1"));
  EXPECT_NE(text(folder_, "1"), text(folder_, "2"));
  EXPECT_THAT(text(folder_, "1"), HasSubstr("In the beginning "));
}

TEST_F(Gpt, RefusesOtherFlagsThanTheCheckpointHas) {
  std::vector<std::string> command = Command(folder_, {model_, "--nproc_per_node=1", "--shard"});
  ExpectError(command, "step_00000048.pt: --shard=1: expected 0, as in the checkpoint");
  command.back() = "--optimizer=muon";
  ExpectError(command, "step_00000048.pt: --optimizer=muon: expected adamw, as in the checkpoint");
  command.back() = "--steps=47";
  ExpectError(command, "--steps=47: expected at least 48, the checkpoint's step");
  const std::string other = ModelFolder() + "text.txt";
  Write(other, std::string(1000, 'x'));
  command.back() = "--data=" + other;
  ExpectError(command, "step_00000048.pt: --data has 1001 tokens: expected 1");
}

TEST(GptFlags, EachMistakeIsOneLine) {
  const std::string train = getenv("TRAIN"), one = "--nproc_per_node=1", data = "--data=" + Text();
  ExpectError({train, "--nproc_per_node=9"}, "--nproc_per_node=9: expected at most 8");
  ExpectError({train, "--batch_size=12"}, "--batch_size=12: expected a multiple of 8");
  ExpectError({train, "--optimizer=adam"}, "--optimizer=adam: expected adamw or muon");
  ExpectError({train, "--optimizer=muon", "--shard"}, "--optimizer=muon: expected adamw");
  ExpectError({train, one, "--data=/none.txt"}, "/none.txt");
  ExpectError({train, one, data, "--model=/none"}, "/none/config.json");
  ExpectError({train, one, data, "--tokenizer=words"}, "words");
  ExpectError({train, one, data, "--block=100000"}, "--block=100000: expected less than half of the text's ");
  ExpectError({train, one, data, "--model=" + ModelFolder("{")}, "config.json");
  const std::string small = ModelFolder(R"({"model_type": "gpt2", "vocab_size": 100, "n_embd": 32, "n_head": 4})");
  ExpectError({train, one, data, "--model=" + small},
              "tokenizer \"bytes\" has 257 tokens, expected at most 100, the size of the vocabulary");
  Write(small + "tokens.bin", std::string(2000, 'x'));
  ExpectError({train, one, "--data=" + small + "tokens.bin", "--block=32"},
              "tokens.bin: token 0 is 30840, expected below 257, the size of the vocabulary");
  Write(small + "text.gz", "x");
  ExpectError({train, one, "--data=" + small + "text.gz"}, "text.gz: is compressed: gunzip it first");
  const std::string broken = ModelFolder();
  Write(broken + "model.safetensors", "");
  ExpectError({train, one, data, "--block=32", "--model=" + broken}, "model.safetensors");
  ExpectError({getenv("GENERATE")}, "--model=: expected a folder or a file");
}

}  // namespace
}  // namespace lockstep::examples
