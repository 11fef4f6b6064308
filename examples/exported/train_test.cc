// The trainer as its users run it: a program with flags.

#include <stdlib.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"
#include "lockstep/models/exported/file.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;
using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::RunProgram;

std::vector<std::string> TrainCommand(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv("TRAIN")};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// Saves 12 images and the targets, and returns the file.
std::string DataFile(const Value& targets) {
  const std::string path = NewFolder() + "/data.pt";
  const Value inputs = Value::List({at::rand({12, 1, 28, 28})});
  EXPECT_TRUE(checkpoint::Save(path, Value::Dict({{"inputs", inputs}, {"targets", targets}})).ok());
  return path;
}

// The loss in the last step; 100 if there is none.
double LastLoss(const std::string& output) {
  const std::string label = "in the first step, ";
  const size_t at = output.find(label);
  return at == output.npos ? 100 : std::stod(output.substr(at + label.size()));
}

// The trainer fails after it has printed something.
void ExpectLateError(const std::vector<std::string>& flags, const std::string& message) {
  int code;
  EXPECT_THAT(RunProgram(TrainCommand(flags), &code), HasSubstr(message));
  EXPECT_EQ(code, 1);
}

TEST(Exported, TrainsTheReleasesNetworkOnFashionMnistWithoutFlags) {
  int code;
  const std::string output = RunProgram(TrainCommand({}), &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("examples/exported/net.pt2: 13706 parameters\n"));
  EXPECT_THAT(output, ContainsRegex("loss: 2[.][0-9]{4} in the first step, 0[.][0-9]{4} in step 100\n"));
  EXPECT_LT(LastLoss(output), 1) << output;
}

TEST(Exported, SavesTheProgramItsWeightsAndTheLosses) {
  const std::string folder = NewFolder();
  int code;
  const std::string output =
      RunProgram(TrainCommand({"--data=" + DataFile(at::arange(12).remainder(10)), "--batch=8", "--steps=3",
                               "--nproc_per_node=2", "--out=" + folder + "/trained.pt2",
                               "--weights=" + folder + "/trained.safetensors", "--losses=" + folder + "/losses.json"}),
                 &code);
  ASSERT_EQ(code, 0) << output;
  auto trained = models::exported::Load(folder + "/trained.pt2");
  ASSERT_TRUE(trained.ok()) << trained.status();
  const auto weights = checkpoint::LoadSafetensors(folder + "/trained.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.status();
  const Value state_dict = checkpoint::StateDict(**trained);
  ASSERT_EQ(state_dict.size(), weights->tensors.size());
  for (const auto& [name, tensor] : state_dict.entries())
    EXPECT_TRUE(at::equal(tensor.tensor(), weights->tensors.Find(name)->tensor())) << name.string_value();
  EXPECT_EQ(state_dict.Find("blocks.0.norm1.num_batches_tracked")->tensor().item<int64_t>(), 3);
  std::ostringstream losses;
  losses << std::ifstream(folder + "/losses.json").rdbuf();
  EXPECT_THAT(losses.str(), ContainsRegex("^\\[[0-9.]+, [0-9.]+, [0-9.]+\\]\n$"));
}

TEST(Exported, RunsUnderTheLauncherOnThreeRanks) {
  std::vector<std::string> command = {getenv("LAUNCH"), "--nproc_per_node=3"};
  for (const std::string& word : TrainCommand({"--batch=48", "--steps=5", "--backend=auto", "--optimizer=adamw"}))
    command.push_back(word);
  int code;
  const std::string output = RunProgram(command, &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_LT(LastLoss(output), 3) << output;
}

TEST(Exported, FindsFilesInTheFolderWhereBazelRunWasTyped) {
  const std::string path = DataFile(at::arange(12).remainder(10));
  int code;
  const std::string output = RunProgram(TrainCommand({"--data=data.pt", "--batch=4", "--steps=1"}), &code,
                                        {{"BUILD_WORKING_DIRECTORY", path.substr(0, path.rfind('/'))}});
  EXPECT_EQ(code, 0) << output;
}

TEST(Exported, BadFlagsAreNamed) {
  testing::ExpectError(TrainCommand({"--steps=0"}), "train: --steps=0: expected 1 or more");
  testing::ExpectError(TrainCommand({"--batch=5", "--nproc_per_node=2"}), "--batch=5: expected a multiple of 2");
  testing::ExpectError(TrainCommand({"--optimizer=adam"}), "--optimizer=adam: expected sgd or adamw");
  testing::ExpectError(TrainCommand({"--loss=l1"}), "--loss=l1: expected cross_entropy, mse or output");
}

TEST(Exported, BadFilesAreNamed) {
  const std::string data = DataFile(at::zeros(11));
  testing::ExpectError(TrainCommand({"--program=/no/such.pt2"}), "--data=: expected a file, since --program is given");
  testing::ExpectError(TrainCommand({"--program=/no/such.pt2", "--data=" + DataFile(at::arange(12).remainder(10))}),
                       "/no/such.pt2: open: No such file or directory");
  testing::ExpectError(TrainCommand({"--data=/no/data.pt"}), "/no/data.pt: open: No such file or directory");
  testing::ExpectError(TrainCommand({"--out=/no/such/out.pt2"}),
                       "--out=/no/such/out.pt2: no file can be created there");
  testing::ExpectError(TrainCommand({"--data=" + data}),
                       data + ": expected tensors with equally many rows, found the shapes [12, 1, 28, 28] and [11]");
  testing::ExpectError(TrainCommand({"--data=" + DataFile("none")}), "[\"targets\"]: expected Tensor, found str");
  testing::ExpectError(TrainCommand({"--losses=/no/such/losses.json"}),
                       "--losses=/no/such/losses.json: no file can be");
}

TEST(Exported, ADtypeThatDoesNotFitIsNamed) {
  const std::string data = DataFile(at::arange(12, at::kInt).remainder(10));
  ExpectLateError({"--data=" + data, "--batch=4"},
                  data + ": step 0, inputs Float [4, 1, 28, 28] and targets Int [4]: expected scalar type Long");
}

TEST(Exported, ALossThatIsNoNumberIsNamed) {
  ExpectLateError({"--data=" + DataFile(at::zeros(12)), "--loss=output"},
                  "--loss=output: expected one number, found a tensor [64, 10]\n");
  ExpectLateError({"--data=" + DataFile(at::full({12, 10}, INFINITY)), "--loss=mse", "--batch=4"},
                  "step 0: the loss is inf\n");
}

}  // namespace
}  // namespace lockstep::examples
