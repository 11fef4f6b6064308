// The trainers as their users run them, programs with flags: train, and where it says so resume, too.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Program;
using testing::RealData;
using testing::RunProgram;
using testing::SmallData;
using testing::WriteSubset;

// `program`: train or resume.
std::vector<std::string> Command(const std::string& program, const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv(absl::AsciiStrToUpper(program).c_str())};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::string SmallDataFlag() { return "--data_dir=" + SmallData(); }

double Accuracy(const std::string& output) {
  const std::string label = "done: test accuracy ";
  const size_t begin = output.find(label);
  return begin == output.npos ? -1 : std::stod(output.substr(begin + label.size()));
}

// The accuracy is printed with four digits.
void ExpectWholeNumber(double accuracy, int images) {
  EXPECT_NEAR(accuracy * images, std::round(accuracy * images), 0.5e-4 * images + 1e-6) << accuracy;
}

TEST(Train, ReachesTheStatedAccuracyOnTwoRanks) {
  int code;
  const std::string output = RunProgram(Command("train", {"--data_dir=" + RealData()}), &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("epoch   train loss   test accuracy    images/s   seconds\n    1   "));
  EXPECT_THAT(output, ContainsRegex("done: test accuracy 0[.][0-9]{4} after 5 epochs\n$"));
  EXPECT_GE(Accuracy(output), 0.87) << output;
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 7) << output;  // a heading, 5 epochs, and the result
}

// The output without the columns that depend on time.
std::string WithoutTimes(const std::string& output) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    absl::StrAppend(&text, words.size() == 5 ? absl::StrJoin(words.begin(), words.begin() + 3, " ") : std::string(line),
                    "\n");
  }
  return text;
}

TEST(Train, PrintsTheLossesAndAccuraciesOfResume) {
  const std::vector<std::string> flags = {SmallDataFlag(), "--nproc_per_node=3", "--epochs=3", "--batch_size=48"};
  int code, code_of_resume;
  const std::string output = RunProgram(Command("train", flags), &code);
  const std::string output_of_resume = RunProgram(Command("resume", flags), &code_of_resume);
  EXPECT_EQ(code, 0) << output;
  EXPECT_EQ(code_of_resume, 0) << output_of_resume;
  EXPECT_EQ(WithoutTimes(output), WithoutTimes(output_of_resume));
}

TEST(Train, ARankThatIsKilledIsNamed) {
  Program run(Command("train", {SmallDataFlag(), "--epochs=100000"}));
  ASSERT_TRUE(run.AwaitText("\n    1  ")) << run.Output();
  const std::map<int, pid_t> ranks = run.Ranks();
  ASSERT_EQ(ranks.size(), 2) << run.Output();
  kill(ranks.at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  EXPECT_THAT(run.Output(),
              HasSubstr(absl::StrCat("rank 1 (local rank 1, pid ", ranks.at(1), ") was killed by signal 9 (SIGKILL)")));
}

TEST(Train, NamesTheProgramThatHasAFlag) {
  for (const std::string flag : {"--checkpoint_dir", "--virtual-ranks", "--elastic"}) {
    testing::ExpectError(Command("train", {flag + "=1"}),
                         "train: unknown flag " + flag + "; //examples/fashion_mnist:resume has it; --help");
  }
}

// Tests of what train and resume have in common.
class Both : public ::testing::TestWithParam<std::string> {
 protected:
  std::string Named(const std::string& message) const { return GetParam() + ": " + message; }
  std::vector<std::string> CommandWith(const std::vector<std::string>& flags) const {
    return Command(GetParam(), flags);
  }
  void ExpectError(const std::vector<std::string>& flags, const std::string& message,
                   const std::map<std::string, std::string>& environment = {}) const {
    testing::ExpectError(CommandWith(flags), message, environment);
  }
};
INSTANTIATE_TEST_SUITE_P(Programs, Both, ::testing::Values("train", "resume"),
                         [](const auto& test) { return test.param; });

TEST_P(Both, RunUnderTheLauncher) {
  std::vector<std::string> command = {getenv("LAUNCH"), "--nproc_per_node=3"};
  for (const std::string& word : CommandWith({SmallDataFlag(), "--epochs=1", "--batch_size=300"})) {
    command.push_back(word);
  }
  int code;
  const std::string output = RunProgram(command, &code);
  ASSERT_EQ(code, 0) << output;
  ExpectWholeNumber(Accuracy(output), 301);  // over 3 ranks, each counted once
}

TEST_P(Both, NameBadFlags) {
  ExpectError({"--no_such_flag"}, Named("unknown flag --no_such_flag"));
  ExpectError({"extra"}, Named("unexpected argument \"extra\""));
  ExpectError({"--epochs=0"}, Named("--epochs=0: expected 1 or more"));
  ExpectError({"--batch_size=0"}, Named("--batch_size=0: expected 1 or more"));
  ExpectError({"--nproc_per_node=0"}, Named("--nproc_per_node=0: expected 1 or more"));
  ExpectError({SmallDataFlag(), "--batch_size=5"}, "--batch_size=5: expected a multiple of 2");
}

TEST_P(Both, ReportALostLineOfOutput) {
  int code;
  const std::string program = CommandWith({})[0] + " " + SmallDataFlag() + " --nproc_per_node=1 --epochs=1";
  EXPECT_THAT(RunProgram({"/bin/sh", "-c", program + " >/dev/full"}, &code),
              HasSubstr(Named("standard output could not be written\n")));
  EXPECT_EQ(code, 1);
}

TEST_P(Both, NameAMissingOrCorruptDataFile) {
  ExpectError({"--data_dir=/no/such/folder"}, "/no/such/folder/train-images-idx3-ubyte");
  const std::string folder = NewFolder();
  WriteSubset(folder, "train", 100);
  WriteSubset(folder, "t10k", 10);
  ASSERT_EQ(truncate((folder + "/train-images-idx3-ubyte").c_str(), 5000), 0);
  ExpectError({"--data_dir=" + folder}, folder + "/train-images-idx3-ubyte");
}

TEST_P(Both, ListTheLinkedBackendsForAnUnknownOne) {
  ExpectError({SmallDataFlag(), "--backend=pigeon"},
              "backend \"pigeon\" is not linked into this program; linked: gloo, hierarchical, shm");
}

TEST_P(Both, NameAWrongWorld) {
  const std::map<std::string, std::string> master = {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(master.begin(), master.end());
    return more;
  };
  ExpectError({SmallDataFlag()}, Named("environment variable RANK=2 is not below WORLD_SIZE=2"),
              with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}));
  ExpectError({SmallDataFlag()}, Named("environment variable WORLD_SIZE=\"many\" is not a number"),
              with({{"RANK", "0"}, {"WORLD_SIZE", "many"}}));
  ExpectError({SmallDataFlag()}, Named("neither InitOptions::world_size nor environment variable WORLD_SIZE is set"),
              with({{"RANK", "0"}}));
}

}  // namespace
}  // namespace lockstep::examples
