// The program as its users run it: under launchers, on one node and on two.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/examples/program/testing/program.h"

namespace lockstep::examples {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Program;
using testing::RunProgram;

std::string RunUnderLaunch(std::vector<std::string> flags, const std::vector<std::string>& program, int* code) {
  flags.insert(flags.begin(), getenv("LAUNCH"));
  flags.insert(flags.end(), program.begin(), program.end());
  return RunProgram(flags, code);
}

// The lines of five epochs on 100 samples, and the last one.
std::string Training(int padding) {
  std::string lines;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    absl::StrAppend(&lines, "epoch ", epoch, ": all 100 samples seen once, and ", padding,
                    " again as padding; mean loss of rank 0 [0-9.e-]+\n");
  }
  return absl::StrCat(
      lines, "the ranks end alike to the bit; one process with the batches of all ranks ends [0-9.e-]+ away\n");
}

int FreePort() { return BoundAddress(Bind(Resolve("127.0.0.1", 0)->front()).get()).port(); }

TEST(RandomDataset, TwoRanksShareTheSamplesEvenly) {
  int code = -1;
  EXPECT_THAT(RunUnderLaunch({"--nproc_per_node=2"}, {getenv("TRAIN")}, &code),
              MatchesRegex(absl::StrCat("rank 0 of 2 is local rank 0 of node 0, on cpu\n"
                                        "rank 1 of 2 is local rank 1 of node 0, on cpu\n",
                                        Training(0))));
  EXPECT_EQ(code, 0);
}

TEST(RandomDataset, ThreeRanksSeeTwoSamplesAgain) {
  int code = -1;
  EXPECT_THAT(RunUnderLaunch({"--nproc_per_node=3"}, {getenv("TRAIN")}, &code),
              MatchesRegex(absl::StrCat("rank 0 of 3 .*rank 2 of 3 is local rank 2 of node 0, on cpu\n", Training(2))));
  EXPECT_EQ(code, 0);
}

TEST(RandomDataset, StartsItsRanksItselfAndRepeatsSamplesWhereTheyAreFewerThanRanks) {
  int code = -1;
  EXPECT_THAT(RunProgram({getenv("TRAIN"), "--nproc_per_node=3", "--size=1", "--epochs=1"}, &code),
              HasSubstr("epoch 1: all 1 samples seen once, and 2 again as padding"));
  EXPECT_EQ(code, 0);
}

TEST(RandomDataset, TwoNodesOfTwoRanksTrainTogether) {
  const int port = FreePort();
  const auto node = [&](int node_rank) {
    return std::vector<std::string>{getenv("LAUNCH"),
                                    "--nproc_per_node=2",
                                    "--nnodes=2",
                                    absl::StrCat("--node_rank=", node_rank),
                                    "--master_addr=127.0.0.1",
                                    absl::StrCat("--master_port=", port),
                                    getenv("TRAIN")};
  };
  Program node_0(node(0)), node_1(node(1));
  EXPECT_EQ(node_0.Wait(), 0);
  EXPECT_EQ(node_1.Wait(), 0);
  EXPECT_THAT(node_0.Output(), MatchesRegex(absl::StrCat("rank 0 of 4 is local rank 0 of node 0, on cpu\n"
                                                         "rank 1 of 4 is local rank 1 of node 0, on cpu\n"
                                                         "rank 2 of 4 is local rank 0 of node 1, on cpu\n"
                                                         "rank 3 of 4 is local rank 1 of node 1, on cpu\n",
                                                         Training(0))));
  EXPECT_EQ(node_1.Output(), "");
}

// torch.distributed.launch without --use_env tells the program its local rank on the command line, as --local-rank in
// newer versions and as --local_rank in older ones.
TEST(RandomDataset, TakesTheLocalRankFromTheCommandLine) {
  const std::string rank =
      absl::StrCat("n=$LOCAL_RANK; unset LOCAL_RANK; [ $n = 1 ] && f=--local-rank || f=--local_rank; ", "exec ",
                   getenv("TRAIN"), " $f=$n --epochs=1");
  int code = -1;
  EXPECT_THAT(
      RunUnderLaunch({"--nproc_per_node=3"}, {"/bin/sh", "-c", rank}, &code),
      HasSubstr("rank 1 of 3 is local rank 1 of node 0, on cpu\nrank 2 of 3 is local rank 2 of node 0, on cpu\n"));
  EXPECT_EQ(code, 0);
}

TEST(RandomDataset, ALocalRankThatTheNodeDoesNotHaveIsNamed) {
  int code = -1;
  EXPECT_THAT(RunUnderLaunch({"--nproc_per_node=2"}, {getenv("TRAIN"), "--local_rank=2"}, &code),
              HasSubstr("LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"));
  EXPECT_EQ(code, 1);
}

TEST(RandomDataset, BadFlagsAreNamed) {
  int code = -1;
  EXPECT_EQ(RunProgram({getenv("TRAIN"), "--batch_size=0"}, &code), "train: --batch_size=0: expected 1 or more\n");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(RunProgram({getenv("TRAIN"), "--timeout=inf"}, &code),
            "train: --timeout=inf: expected a positive number of seconds, at most 1000000000\n");
  EXPECT_EQ(code, 1);
}

}  // namespace
}  // namespace lockstep::examples
