// The tour as its users run it: a program with flags.

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/testing/program.h"

namespace lockstep::examples {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Program;
using testing::RunProgram;

std::string RunTour(const std::vector<std::string>& flags, int* code) {
  std::vector<std::string> command = {getenv("DDP_TOUR")};
  command.insert(command.end(), flags.begin(), flags.end());
  return RunProgram(command, code);
}

TEST(DdpTour, GoesThroughAllParts) {
  int code = -1;
  EXPECT_THAT(
      RunTour({}, &code),
      MatchesRegex("basic: 2 ranks on cpu took one step; it is the step of one process on all 40 samples, within "
                   "[0-9.e-]+\n"
                   "checkpoint: rank 0 saved, 2 ranks loaded with map_location \\{\"cpu\": \"cpu\"\\} and went "
                   "on alike\n"
                   "model_parallel: 2 ranks with halves on cpu and cpu took one step alike\n"));
  EXPECT_EQ(code, 0);
}

TEST(DdpTour, GoesThroughOnePartWithAsManyRanksAsAskedFor) {
  int code = -1;
  EXPECT_THAT(RunTour({"--part=checkpoint", "--nproc_per_node=3"}, &code), HasSubstr("rank 0 saved, 3 ranks loaded"));
  EXPECT_EQ(code, 0);
}

TEST(DdpTour, RunsUnderALauncher) {
  int code = -1;
  const std::string output = RunProgram({getenv("LAUNCH"), "--nproc_per_node=2", getenv("DDP_TOUR")}, &code);
  EXPECT_THAT(output, HasSubstr("model_parallel: 2 ranks"));
  EXPECT_EQ(code, 0);
}

TEST(DdpTour, NamesAPartThatItDoesNotHave) {
  int code = -1;
  EXPECT_EQ(RunTour({"--part=advanced"}, &code),
            "ddp_tour: --part=advanced: expected basic, checkpoint, model_parallel or all\n");
  EXPECT_EQ(code, 1);
}

TEST(DdpTour, ATimeoutThatIsNotANumberOfSecondsIsRefused) {
  int code = -1;
  EXPECT_EQ(RunTour({"--timeout=inf"}, &code),
            "ddp_tour: --timeout=inf: expected a positive number of seconds, at most 1000000000\n");
  EXPECT_EQ(code, 1);
}

// Rank 0 cannot save, and tells the other one.
TEST(DdpTour, AnErrorNamesItsRankOnce) {
  int code = -1;
  const std::string output = RunProgram(
      {"/usr/bin/env", "TMPDIR=/proc/nothing", getenv("LAUNCH"), "--nproc_per_node=2", getenv("DDP_TOUR")}, &code);
  EXPECT_THAT(output, HasSubstr("ddp_tour: checkpoint: rank 0: "));
  EXPECT_THAT(output, HasSubstr("ddp_tour: checkpoint: rank 1: "));
  EXPECT_THAT(output, Not(HasSubstr("checkpoint: rank 1: rank 1: ")));
  EXPECT_THAT(output, Not(HasSubstr("rank 1: checkpoint: rank 1: ")));
  EXPECT_EQ(code, 1);
}

TEST(DdpTour, ARankThatDiesIsNamed) {
  Program tour({getenv("DDP_TOUR"), "--timeout=30"});
  std::map<int, pid_t> ranks;
  while (ranks.count(1) == 0 && tour.Wait(absl::Milliseconds(1)) < 0) ranks = tour.Ranks();
  ASSERT_EQ(ranks.count(1), 1);
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(tour.Wait(absl::Seconds(20)), 128 + SIGKILL) << tour.Output();
  EXPECT_THAT(tour.Output(), HasSubstr("rank 1"));
  EXPECT_THAT(tour.Output(), HasSubstr("SIGKILL"));
}

}  // namespace
}  // namespace lockstep::examples
