// The trainer with --virtual_ranks: the same bits on any number of ranks.

#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/examples/program/testing/same_bits.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using testing::DigestOf;
using testing::ExpectError;
using testing::RunOnTwoHosts;
using testing::RunProgram;
using testing::SmallData;

// 2000 images are 42 steps. The last batch is short. There are checkpoints of steps 20, 40 and 42.
constexpr int kSteps = 42;

std::vector<std::string> ResumeCommand(const std::vector<std::string>& more) {
  std::vector<std::string> command = {getenv("RESUME"), "--data_dir=" + SmallData(), "--epochs=1", "--batch_size=48",
                                      "--virtual_ranks=8"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::string CheckpointOf(const std::string& folder, int step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

// The result of a run: the digest of its last checkpoint, and the loss and the accuracy that it printed.
struct Result {
  std::string digest, printed;
  friend bool operator==(const Result& a, const Result& b) { return a.digest == b.digest && a.printed == b.printed; }
  friend std::ostream& operator<<(std::ostream& out, const Result& result) {
    return out << result.digest << " " << result.printed;
  }
};

Result ResultOf(const std::string& folder, const std::string& output, int code) {
  EXPECT_EQ(code, 0) << output;
  std::string printed;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 5 && words[0] == "1") printed = absl::StrCat("loss ", words[1], ", accuracy ", words[2]);
  }
  EXPECT_NE(printed, "") << output;
  return {DigestOf(CheckpointOf(folder, kSteps)), printed};
}

// As a user runs it: tests have OMP_NUM_THREADS=1 otherwise.
Result TrainOn(int ranks, const std::string& backend, const std::string& folder = NewFolder()) {
  std::vector<std::string> command = {"/usr/bin/env", "-u", "OMP_NUM_THREADS"};
  for (const std::string& word : ResumeCommand(
           {absl::StrCat("--nproc_per_node=", ranks), "--backend=" + backend, "--checkpoint_dir=" + folder})) {
    command.push_back(word);
  }
  int code;
  const std::string output = RunProgram(command, &code);
  return ResultOf(folder, output, code);
}

// The folder of a run of eight ranks that nothing interrupted, and its result.
const std::string& WholeRun() {
  static const std::string* const folder = new std::string(NewFolder());
  return *folder;
}
const Result& Whole() {
  static const Result* const result = new Result(TrainOn(8, "shm", WholeRun()));
  return *result;
}

TEST(VirtualRanks, TrainToTheSameBitsOnAnyNumberOfRanks) {
  for (const int ranks : {1, 3, 5}) EXPECT_EQ(TrainOn(ranks, "shm"), Whole()) << ranks << " ranks";
}

TEST(VirtualRanks, TrainToTheSameBitsOverGloo) {
  for (const int ranks : {2, 4}) EXPECT_EQ(TrainOn(ranks, "gloo"), Whole()) << ranks << " ranks";
}

TEST(VirtualRanks, TrainToTheSameBitsOnTwoHosts) {
  const std::string folder = NewFolder();
  int code;
  const std::string output = RunOnTwoHosts(2, ResumeCommand({"--checkpoint_dir=" + folder}), &code);
  EXPECT_EQ(ResultOf(folder, output, code), Whole());
}

TEST(VirtualRanks, GoOnInMidEpochOnOtherNumbersOfRanks) {
  ASSERT_NE(Whole().digest, "");
  std::string before = WholeRun();
  for (const auto& [ranks, step] : std::map<int, int>{{3, 20}, {5, 40}}) {
    const std::string folder = NewFolder();
    std::filesystem::copy(CheckpointOf(before, step), folder);
    EXPECT_EQ(TrainOn(ranks, "gloo", folder).digest, Whole().digest) << ranks << " ranks";
    before = folder;
  }
}

TEST(VirtualRanks, WithoutTheOptionDependOnTheNumberOfRanks) {
  const auto train = [](int ranks) {
    const std::string folder = NewFolder();
    int code;
    const std::string output = RunProgram(
        ResumeCommand({absl::StrCat("--nproc_per_node=", ranks), "--virtual_ranks=0", "--checkpoint_dir=" + folder}),
        &code);
    EXPECT_EQ(code, 0) << output;
    return DigestOf(CheckpointOf(folder, kSteps));
  };
  EXPECT_NE(train(1), train(4));
}

TEST(VirtualRanks, WhatDoesNotFitIsNamed) {
  ExpectError(ResumeCommand({"--virtual_ranks=1"}), "--virtual_ranks=1: expected 0, or at least the 2 ranks");
  ExpectError(ResumeCommand({"--virtual_ranks=-1"}), "--virtual_ranks=-1: expected 0, or at least the 2 ranks");
  ExpectError(ResumeCommand({"--virtual_ranks=5"}), "--batch_size=48: expected a multiple of 5");
  ASSERT_NE(Whole().digest, "");
  const std::string resume = "--checkpoint_dir=" + WholeRun(), file = "/step_00000042.pt: ";
  ExpectError(ResumeCommand({resume, "--virtual_ranks=4"}),
              file + "--virtual_ranks=4: expected 8, as in the checkpoint");
  ExpectError(ResumeCommand({resume, "--virtual_ranks=0"}),
              file + "--virtual_ranks=0: expected 8, as in the checkpoint");
}

}  // namespace
}  // namespace lockstep::examples
