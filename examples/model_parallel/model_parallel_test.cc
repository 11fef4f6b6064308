// The program as its users run it.

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/program/testing/program.h"

namespace lockstep::examples {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::RunProgram;

TEST(ModelParallel, TrainsAloneAndOnTwoRanksToTheBitsOfTheUnsplitModel) {
  int code = -1;
  EXPECT_THAT(RunProgram({getenv("MODEL_PARALLEL")}, &code),
              MatchesRegex("alone: halves on cpu and cpu, 20 steps: loss [0-9.]+ -> [0-9.]+, and the same bits as on "
                           "one device\n"
                           "ddp: 2 ranks with halves on cpu and cpu, 20 steps: loss [0-9.]+ -> [0-9.]+, all alike, and "
                           "the same bits as on one device\n"));
  EXPECT_EQ(code, 0);
}

TEST(ModelParallel, RunsUnderALauncher) {
  int code = -1;
  EXPECT_THAT(RunProgram({getenv("LAUNCH"), "--nproc_per_node=3", getenv("MODEL_PARALLEL"), "--steps=5"}, &code),
              HasSubstr("ddp: 3 ranks with halves on cpu and cpu, 5 steps"));
  EXPECT_EQ(code, 0);
}

TEST(ModelParallel, BadFlagsAreNamed) {
  int code = -1;
  EXPECT_EQ(RunProgram({getenv("MODEL_PARALLEL"), "--steps=1"}, &code),
            "model_parallel: --steps=1: expected 2 or more\n");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(RunProgram({getenv("MODEL_PARALLEL"), "--nproc_per_node=0"}, &code),
            "model_parallel: --nproc_per_node=0: expected 1 or more\n");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(RunProgram({getenv("MODEL_PARALLEL"), "--timeout=nan"}, &code),
            "model_parallel: --timeout=nan: expected a positive number of seconds, at most 1000000000\n");
  EXPECT_EQ(code, 1);
}

}  // namespace
}  // namespace lockstep::examples
