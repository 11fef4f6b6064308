// The trainer on nodes that come and go: the file at the end is that of a run that nothing disturbed.

#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/examples/program/testing/same_bits.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::Eventually;
using launch::testing::NewFolder;
using ::testing::ContainsRegex;
using testing::DigestOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Program;
using testing::RunProgram;
using testing::SmallData;

// 2000 images are 15 steps an epoch.
constexpr int kEpochs = 40, kSteps = 15 * kEpochs;

std::vector<std::string> ResumeCommand(const std::string& folder) {
  return {getenv("RESUME"),   "--data_dir=" + SmallData(), absl::StrCat("--epochs=", kEpochs),
          "--batch_size=136", "--virtual_ranks=8",         "--checkpoint_dir=" + folder};
}

std::string CheckpointOf(const std::string& folder, int step) {
  return absl::StrFormat("%sstep_%08d.pt", folder, step);
}

// The number of the newest checkpoint's step. There is one every 20 steps and after each epoch.
int NewestStep(const std::string& folder) {
  int newest = 0;
  for (int step = 5; step <= kSteps; step += 5) {
    if (std::filesystem::exists(CheckpointOf(folder, step))) newest = step;
  }
  return newest;
}

class NodesTest : public ::testing::Test {
 protected:
  // A launcher of a job of one or two nodes, each with two ranks.
  std::vector<std::string> Node(const std::string& folder) const {
    std::vector<std::string> command = {getenv("LAUNCH"),
                                        "--nnodes=1:2",
                                        "--nproc_per_node=2",
                                        "--max_restarts=3",
                                        "--rdzv_backend=tcp",
                                        absl::StrCat("--rdzv_endpoint=127.0.0.1:", port_),
                                        "--rdzv_conf=last_call_timeout=0.1"};
    for (const std::string& word : ResumeCommand(folder)) command.push_back(word);
    return command;
  }

  const int port_ = *launch::FreePort();
  const std::map<std::string, std::string> environment_ = {{"LOCKSTEP_JOB_SECRET", "a secret of this test alone"}};
};

TEST_F(NodesTest, ThatComeAndGoTrainToTheSameBits) {
  const std::string quiet = NewFolder(), folder = NewFolder();
  int code;
  const std::string output = RunProgram(ResumeCommand(quiet), &code);
  ASSERT_EQ(code, 0) << output;

  const auto await_step = [&](int step) {
    return Eventually([&] { return NewestStep(folder) >= step; }, absl::Seconds(60));
  };
  Program first(Node(folder), environment_);
  ASSERT_TRUE(await_step(15)) << first.Output();
  {
    Program second(Node(folder), environment_);
    ASSERT_TRUE(Eventually([&] { return second.Ranks().size() == 2; }, absl::Seconds(30))) << second.Output();
    ASSERT_TRUE(await_step(NewestStep(folder) + 45)) << first.Output();
    kill(second.pid(), SIGKILL);  // with its ranks
  }
  ASSERT_TRUE(await_step(NewestStep(folder) + 45)) << first.Output();
  const std::map<int, pid_t> ranks = first.Ranks();
  ASSERT_FALSE(ranks.empty()) << first.Output();
  kill(ranks.begin()->second, SIGKILL);
  EXPECT_EQ(first.Wait(absl::Seconds(240)), 0) << first.Output();

  // The second node's ranks join, and the others go on when they and a rank of the first node have died.
  EXPECT_THAT(first.Output(), ContainsRegex("generation [23] has 4 ranks\n"));
  EXPECT_THAT(first.Output(), ContainsRegex("host .* was lost; generation [34] has 2 ranks\n"));
  EXPECT_THAT(first.Output(), ContainsRegex("was killed by signal 9 .SIGKILL.; generation [45] has 1 rank\n"));
  EXPECT_THAT(first.Output(), Not(HasSubstr("restart 1 of 3")));
  const std::vector<std::string> starts = absl::StrSplit(first.Output(), "no checkpoint yet in " + folder);
  EXPECT_EQ(starts.size(), 2) << first.Output();
  EXPECT_EQ(DigestOf(CheckpointOf(folder, kSteps)), DigestOf(CheckpointOf(quiet, kSteps)));
}

}  // namespace
}  // namespace lockstep::examples
