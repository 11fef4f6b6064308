// The trainer with checkpoints, as its users run it: a program with flags.

#include <ATen/ops/zeros.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::Eventually;
using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using testing::ExpectError;
using ::testing::HasSubstr;
using testing::Program;
using testing::RunProgram;
using testing::SmallData;

// With the small data.
std::vector<std::string> ResumeCommand(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv("RESUME"), "--data_dir=" + SmallData()};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::string RunResume(const std::vector<std::string>& flags, int* code) {
  return RunProgram(ResumeCommand(flags), code);
}

std::string CheckpointOf(const std::string& folder, int64_t step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

// Waits until `folder` has the checkpoint of `least` or one of the 60 following steps, and returns its step. A running
// trainer removes older ones.
int64_t AwaitCheckpoint(const std::string& folder, int64_t least) {
  int64_t step = least;
  const auto exists = [&] {
    for (step = least; step <= least + 60; ++step) {
      if (std::filesystem::exists(CheckpointOf(folder, step))) return true;
    }
    return false;
  };
  EXPECT_TRUE(Eventually(exists, absl::Seconds(60)));
  return step;
}

checkpoint::Value Loaded(const std::string& path) {
  const absl::StatusOr<checkpoint::Value> value = checkpoint::Load(path);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : checkpoint::Value();
}

// With more than two ranks Gloo's rounding depends on where in a bucket a number is.
TEST(Resume, ResumesToTheSameBitsWithFourRanksOverGloo) {
  const std::string whole = NewFolder(), resumed = NewFolder();
  const auto flags = [](const std::string& folder) -> std::vector<std::string> {
    return {"--nproc_per_node=4", "--backend=gloo", "--epochs=1", "--batch_size=20", "--checkpoint_dir=" + folder};
  };
  Program run(ResumeCommand(flags(whole)));
  const auto copy = [&] {
    const int64_t step = AwaitCheckpoint(whole, 20);
    std::error_code error;  // the trainer may remove the file before it is copied
    std::filesystem::copy_file(CheckpointOf(whole, step), CheckpointOf(resumed, step), error);
    return !error;
  };
  ASSERT_TRUE(Eventually(copy, absl::Seconds(60)));
  ASSERT_EQ(run.Wait(), 0) << run.Output();
  int code;
  const std::string output = RunResume(flags(resumed), &code);
  ASSERT_EQ(code, 0) << output;
  EXPECT_THAT(output, ContainsRegex("resuming from .*/step_000000[2468]0[.]pt: [2468]0 of 100 steps are done"));
  EXPECT_TRUE(checkpoint::Identical(Loaded(CheckpointOf(whole, 100)), Loaded(CheckpointOf(resumed, 100))));
}

TEST(Resume, KilledInMidEpochItEndsNamingTheRankAndResumesToTheSameBits) {
  const std::string whole_dir = NewFolder(), killed_dir = NewFolder();
  const std::vector<std::string> flags = {"--batch_size=20", "--epochs=3"};
  const auto with = [&](const std::string& directory, std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    more.push_back("--checkpoint_dir=" + directory);
    return more;
  };
  int code;
  const std::string uninterrupted = RunResume(with(whole_dir, {}), &code);
  ASSERT_EQ(code, 0) << uninterrupted;
  EXPECT_THAT(uninterrupted, HasSubstr("no checkpoint yet in " + whole_dir + ": 0 of 300 steps are done\n"));

  Program run(ResumeCommand(with(killed_dir, {})));
  AwaitCheckpoint(killed_dir, 120);
  const std::map<int, pid_t> ranks = run.Ranks();
  ASSERT_EQ(ranks.size(), 2) << run.Output();
  const absl::Time killed = absl::Now();
  kill(ranks.at(1), SIGKILL);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  EXPECT_THAT(run.Output(),
              HasSubstr(absl::StrCat("rank 1 (local rank 1, pid ", ranks.at(1), ") was killed by signal 9 (SIGKILL)")));
  for (const auto& rank : ranks) EXPECT_NE(kill(rank.second, 0), 0) << "rank " << rank.first << " is left";

  EXPECT_THAT(RunResume(with(killed_dir, {"--batch_size=40"}), &code),
              HasSubstr("--batch_size=40: expected 20, as in the checkpoint"));
  EXPECT_EQ(code, 1);
  // One process takes up what two ranks left.
  const std::string alone_dir = NewFolder();
  std::filesystem::copy(killed_dir, alone_dir);
  const std::string alone = RunResume(with(alone_dir, {"--nproc_per_node=1"}), &code);
  ASSERT_EQ(code, 0) << alone;
  EXPECT_EQ(*checkpoint::GetInt(Loaded(CheckpointOf(alone_dir, 300)), {"sampler", "num_replicas"}), 1);

  const std::string resumed = RunResume(with(killed_dir, {}), &code);
  ASSERT_EQ(code, 0) << resumed;
  const size_t name = resumed.find("step_");
  ASSERT_NE(name, resumed.npos) << resumed;
  EXPECT_THAT(resumed, ContainsRegex("^resuming from .*[.]pt: [0-9]+ of 300 steps are done\n"));
  EXPECT_NE(std::stoi(resumed.substr(name + 5)) % 100, 0) << "not in mid-epoch: " << resumed;
  const checkpoint::Value a = Loaded(CheckpointOf(whole_dir, 300)), b = Loaded(CheckpointOf(killed_dir, 300));
  EXPECT_EQ(*checkpoint::GetInt(a, {"sampler", "epoch"}), 3);
  EXPECT_TRUE(checkpoint::Identical(a, b));

  // Resuming a finished run trains no further and prints its accuracy.
  const std::string again = RunResume(with(killed_dir, {}), &code);
  EXPECT_EQ(code, 0) << again;
  EXPECT_THAT(again,
              HasSubstr("step_00000300.pt: 300 of 300 steps are done\nthis run is finished\ndone: test accuracy"));
}

TEST(Resume, AFolderThatCannotBeMadeIsNamed) {
  ExpectError(ResumeCommand({"--checkpoint_dir=/dev/null/below"}),
              "/dev/null/below: make the directory: Not a directory");
}

TEST(Resume, ACheckpointOfAnotherModelIsRefusedNamingTheDifference) {
  const std::string folder = NewFolder(), file = CheckpointOf(folder, 1);
  const std::vector<std::string> resume = {"--checkpoint_dir=" + folder};
  const auto save = [&](const checkpoint::Value& value) {
    const auto manager = checkpoint::Manager::Create(folder, nullptr);
    ASSERT_TRUE(manager.ok() && (*manager)->Save(1, value).ok());
  };
  save(checkpoint::Value::Dict({{"state_dict", checkpoint::Value::Dict({{"fc.weight", at::zeros({3, 3})}})}}));
  ExpectError(ResumeCommand(resume), "fc.weight");
  ExpectError(ResumeCommand(resume), "/step_00000001.pt: ");
  save(checkpoint::Value::Dict({{"fc.weight", at::zeros({3, 3})}}));
  ExpectError(ResumeCommand(resume), "/step_00000001.pt: ");
  std::ofstream(file) << "not a checkpoint";
  ExpectError(ResumeCommand(resume), "none of 1 checkpoints is intact: remove them to begin anew; ");
}

}  // namespace
}  // namespace lockstep::examples
