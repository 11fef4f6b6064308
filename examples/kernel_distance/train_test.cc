// The program as its users run it.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/testing/program.h"

namespace lockstep::examples {
namespace {

using ::testing::ContainsRegex;
using ::testing::MatchesRegex;
using testing::Program;
using testing::RunProgram;

// The lines about progress come if the machine is slow.
std::string WithoutProgress(const std::string& output) {
  std::vector<std::string> lines = absl::StrSplit(output, '\n');
  lines.erase(std::remove_if(lines.begin(), lines.end(), [](const std::string& l) { return absl::EndsWith(l, " s"); }),
              lines.end());
  return absl::StrJoin(lines, "\n");
}

std::string Steps(const std::string& output) { return output.substr(std::min(output.size(), output.find("step 1"))); }

TEST(KernelDistanceTrain, ComparesAndTrainsAndBlockByBlockAlike) {
  const std::vector<std::string> command = {getenv("TRAIN"), "--steps=2", "--convolutions=6", "--block_mib=1",
                                            "--batch_size=2"};
  int code = -1;
  const std::string whole = WithoutProgress(RunProgram(command, &code));
  EXPECT_EQ(code, 0) << whole;
  EXPECT_THAT(whole, MatchesRegex("6 convolutions: distance [0-9.e+]+, with its gradient the same bits on cpu, cpu as "
                                  "on one device\n"
                                  "memory beyond weights and gradients: [0-9.]+ MiB at once, [0-9.]+ MiB block by "
                                  "block\n"
                                  "step 1: cross entropy [0-9.]+ \\+ 1e-06 x distance [0-9.e+]+ = [0-9.]+\n"
                                  "step 2: cross entropy [0-9.]+ \\+ 1e-06 x distance [0-9.e+]+ = [0-9.]+\n"));
  std::vector<std::string> block_by_block = command;
  block_by_block.push_back("--accumulate");
  EXPECT_EQ(Steps(WithoutProgress(RunProgram(block_by_block, &code))), Steps(whole));
  EXPECT_EQ(code, 0);
}

TEST(KernelDistanceTrain, SaysWhatItDoesWhileItComputes) {
  const Program train({getenv("TRAIN"), "--blocks=4", "--block_mib=1"});
  const absl::Time end = absl::Now() + absl::Seconds(50);
  while (absl::Now() < end && !absl::StrContains(train.Output(), " s\n")) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_THAT(train.Output(), ContainsRegex("train: the distance on one device, [3-9] s\n"));
}

TEST(KernelDistanceTrain, BadFlagsAreNamed) {
  const auto expect_error = [](const std::string& flag, const std::string& message) {
    int code = -1;
    EXPECT_THAT(RunProgram({getenv("TRAIN"), flag}, &code),
                ::testing::StartsWith(absl::StrCat("train: ", flag, message)));
    EXPECT_EQ(code, 1);
  };
  expect_error("--block_mib=0", ": expected 1 or more\n");
  expect_error("--steps=1", ": expected 2 or more\n");
  expect_error("--lr=inf", ": expected at most 1000000000\n");
  expect_error("--factor=nan", ": expected ");
  expect_error("--devices=cpu,gpu", ": ");
}

}  // namespace
}  // namespace lockstep::examples
