// The trainer under Lockstep's launch, as a user runs it, while ranks die.

#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::Eventually;
using launch::testing::NewFolder;
using launch::testing::ReadFile;
using ::testing::ContainsRegex;
using testing::ExpectError;
using ::testing::HasSubstr;
using testing::Program;
using testing::RunProgram;
using testing::SmallData;

// 2000 images are 42 steps an epoch. There are checkpoints every 20 steps and after each epoch.
constexpr int kEpochs = 3, kEpochSteps = 42;

std::string CheckpointOf(const std::string& folder, int step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

std::vector<std::string> ResumeCommand(const std::string& folder, const std::vector<std::string>& more) {
  std::vector<std::string> command = {getenv("RESUME"), "--data_dir=" + SmallData(), absl::StrCat("--epochs=", kEpochs),
                                      "--batch_size=48", "--checkpoint_dir=" + folder};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// Under the launcher, with three ranks.
std::vector<std::string> Launched(const std::string& folder, const std::vector<std::string>& more) {
  std::vector<std::string> command = {getenv("LAUNCH"), "--standalone", "--nproc-per-node=3"};
  for (const std::string& word : ResumeCommand(folder, more)) command.push_back(word);
  return command;
}

// The columns of the printed table that do not depend on time, line by line, and the last line.
std::vector<std::string> Table(const std::string& output) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int epoch;
    if (words.size() == 5 && absl::SimpleAtoi(words[0], &epoch)) {
      lines.push_back(absl::StrCat("epoch ", words[0], ", loss ", words[1], ", accuracy ", words[2]));
    } else if (!words.empty() && (words[0] == "done:" || words[0] == "epoch")) {
      lines.emplace_back(line);
    }
  }
  return lines;
}

size_t HashOf(const std::string& path) { return std::hash<std::string>()(ReadFile(path)); }

// The hash of the last checkpoint's file of a run that nothing disturbed, and its table.
struct Quiet {
  size_t hash;
  std::vector<std::string> table;
};
const Quiet& QuietRun() {
  static const Quiet* const quiet = [] {
    const std::string folder = NewFolder();
    int code;
    const std::string output = RunProgram(ResumeCommand(folder, {"--virtual_ranks=6", "--nproc_per_node=2"}), &code);
    EXPECT_EQ(code, 0) << output;
    EXPECT_EQ(Table(output).size(), kEpochs + 2) << output;
    return new Quiet{HashOf(CheckpointOf(folder, kEpochs * kEpochSteps)), Table(output)};
  }();
  return *quiet;
}

TEST(Elastic, RanksThatDieChangeNeitherTheCheckpointNorTheTable) {
  const std::string folder = NewFolder();
  Program run(Launched(folder, {"--virtual_ranks=6"}));
  ASSERT_TRUE(run.AwaitText("\n    1  ")) << run.Output();
  const std::map<int, pid_t> ranks = run.Ranks();
  ASSERT_EQ(ranks.size(), 3) << run.Output();
  kill(ranks.at(0), SIGKILL);
  ASSERT_TRUE(run.AwaitText("generation 2 has 2 ranks")) << run.Output();
  ASSERT_TRUE(run.AwaitText("\n    2  ")) << run.Output();
  kill(ranks.at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr(absl::StrCat("(local rank 1, pid ", ranks.at(1), ") was killed by signal 9")));
  EXPECT_EQ(Table(run.Output()), QuietRun().table) << run.Output();
  EXPECT_EQ(HashOf(CheckpointOf(folder, kEpochs * kEpochSteps)), QuietRun().hash) << run.Output();
}

TEST(Elastic, ARunWhoseRanksAllDiedResumesToTheSameBits) {
  const std::string folder = NewFolder();
  {
    Program run(Launched(folder, {"--virtual_ranks=6"}));
    ASSERT_TRUE(run.AwaitText("\n    1  ")) << run.Output();
    const auto is_in_mid_epoch = [&] {
      return std::filesystem::exists(CheckpointOf(folder, 60)) || std::filesystem::exists(CheckpointOf(folder, 80));
    };
    ASSERT_TRUE(Eventually(is_in_mid_epoch, absl::Seconds(60)));
  }  // the launcher is killed, and the ranks with it
  Program run(ResumeCommand(folder, {"--virtual_ranks=6", "--nproc_per_node=2"}));
  ASSERT_TRUE(run.AwaitText("steps are done\n")) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("resuming from " + folder));
  kill(run.Ranks().at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("generation 2 has 1 rank"));
  const std::string last = CheckpointOf(folder, kEpochs * kEpochSteps);
  EXPECT_EQ(HashOf(last), QuietRun().hash) << run.Output();
  EXPECT_THAT(Table(run.Output()), ::testing::Contains(QuietRun().table[2])) << "the loss of the whole second epoch";
}

TEST(Elastic, TheSecondsOfAnEpochAreThoseOfAllItsGroups) {
  const std::string folder = NewFolder();
  Program run(Launched(folder, {"--virtual_ranks=6"}));
  ASSERT_TRUE(run.AwaitText("\n    1  ")) << run.Output();
  const std::map<int, pid_t> ranks = run.Ranks();
  kill(ranks.at(1), SIGSTOP);
  absl::SleepFor(absl::Seconds(3));
  kill(ranks.at(2), SIGKILL);
  kill(ranks.at(1), SIGCONT);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("generation 2 has 2 ranks"));
  EXPECT_THAT(run.Output(), ContainsRegex("\n    [23] [ 0-9.]+ [3-9]\\.[0-9]\n")) << "seconds";
}

TEST(Elastic, WithoutVirtualRanksTheOthersGoOn) {
  const std::string folder = NewFolder();
  Program run(Launched(folder, {"--elastic"}));
  ASSERT_TRUE(run.AwaitText("\n    1  ")) << run.Output();
  kill(run.Ranks().at(2), SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("generation 2 has 2 ranks"));
  EXPECT_EQ(Table(run.Output()).size(), kEpochs + 2) << run.Output();
}

TEST(Elastic, WhatDoesNotFitIsNamed) {
  const std::string folder = NewFolder();
  ExpectError({getenv("RESUME"), "--elastic", "--data_dir=" + SmallData()},
              "rank 0 of 1: init_method env:// needs environment variable MASTER_ADDR, which is not set",
              {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ExpectError(ResumeCommand(folder, {"--virtual_ranks=5", "--nproc_per_node=2"}),
              "--batch_size=48: expected a multiple of 5");
}

}  // namespace
}  // namespace lockstep::examples
