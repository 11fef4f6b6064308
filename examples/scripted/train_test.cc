// The trainer as its users run it: a program with flags.

#include <stdlib.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"
#include "lockstep/models/scripted/file.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::RunProgram;

std::vector<std::string> TrainCommand(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv("TRAIN"), "--data_dir=" + testing::SmallData()};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// Returns the accuracy of the last epoch; -1 if there is none.
double Accuracy(const std::string& output) {
  const std::string label = "test accuracy 0";
  const size_t at = output.rfind(label);
  return at == output.npos ? -1 : std::stod(output.substr(at + label.size() - 1));
}

TEST(Scripted, TrainsOnTwoRanksAndSavesBothKindsOfFiles) {
  const std::string folder = NewFolder();
  int code;
  const std::string output =
      RunProgram(TrainCommand({"--epochs=8", "--batch_size=100", "--output=" + folder + "/trained.ts",
                               "--state_dict=" + folder + "/trained.pt"}),
                 &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("examples/scripted/net.ts: a Net with 9122 parameters\n"));
  EXPECT_THAT(output, ContainsRegex("epoch 8: train loss 0[.][0-9]{4}, test accuracy 0[.][0-9]{4}\n"));
  EXPECT_THAT(output, HasSubstr("loaded again, its test accuracy is the same\n"));
  EXPECT_GT(Accuracy(output), 0.7) << output;  // 2000 images
  absl::StatusOr<models::scripted::ScriptModule> module = models::scripted::Load(folder + "/trained.ts");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_FALSE((*module)->is_training());
  const auto state_dict = checkpoint::Load(folder + "/trained.pt");
  ASSERT_TRUE(state_dict.ok()) << state_dict.status();
  EXPECT_TRUE(checkpoint::Identical(*state_dict, checkpoint::StateDict(**module)));
}

TEST(Scripted, RunsUnderTheLauncherOnThreeRanks) {
  std::vector<std::string> command = {getenv("LAUNCH"), "--nproc_per_node=3"};
  for (const std::string& word : TrainCommand({"--epochs=1", "--batch_size=300"})) command.push_back(word);
  int code;
  const std::string output = RunProgram(command, &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_GE(Accuracy(output), 0) << output;
}

TEST(Scripted, BadFlagsAreNamed) {
  testing::ExpectError(TrainCommand({"--epochs=0"}), "train: --epochs=0: expected 1 or more");
  testing::ExpectError(TrainCommand({"--batch_size=5"}), "--batch_size=5: expected a multiple of 2");
}

TEST(Scripted, AFailedSaveIsNamed) {
  int code;
  EXPECT_THAT(RunProgram(TrainCommand({"--epochs=1", "--output=/no/such/folder/x.ts"}), &code),
              HasSubstr("/no/such/folder/x.ts: open its directory: No such file or directory"));
  EXPECT_EQ(code, 1);
}

TEST(Scripted, AFileThatIsNoModuleIsNamed) {
  testing::ExpectError(TrainCommand({"--module=/no/such.ts"}), "/no/such.ts: open: No such file or directory");
  const std::string path = NewFolder() + "/state.pt";
  ASSERT_TRUE(checkpoint::Save(path, checkpoint::Value::Dict({{"epoch", 3}})).ok());
  testing::ExpectError(TrainCommand({"--module=" + path}),
                       path + ": a file of torch.save, which has tensors but no code");
}

}  // namespace
}  // namespace lockstep::examples
