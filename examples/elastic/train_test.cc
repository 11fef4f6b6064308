// The program as a user runs it, undisturbed and with ranks that die.

#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/fashion_mnist/testing/small_data.h"
#include "lockstep/examples/program/testing/program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::examples {
namespace {

using launch::testing::NewFolder;
using launch::testing::ReadFile;
using testing::ExpectError;
using ::testing::HasSubstr;
using testing::RunProgram;
using testing::SmallData;

// 2000 images are 2 steps an epoch.
std::string Train(const std::string& out, const std::vector<std::string>& flags) {
  std::vector<std::string> command = {getenv("TRAIN"), "--data_dir=" + SmallData(), "--epochs=30", "--out=" + out};
  command.insert(command.end(), flags.begin(), flags.end());
  int code = -1;
  std::string output = RunProgram(command, &code);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("done: test accuracy 0."));
  return output;
}

TEST(ElasticTrain, WritesTheSameFileWhateverRanksDie) {
  // The name of a file is in it, as in Python's.
  const std::string quiet_file = NewFolder() + "net.pt", file = NewFolder() + "net.pt";
  Train(quiet_file, {"--nproc_per_node=1"});
  const std::string output = Train(file, {"--nproc_per_node=3", "--kill_every=1"});
  EXPECT_THAT(output, HasSubstr("was killed by signal 9 (SIGKILL); generation "));
  const std::string quiet = ReadFile(quiet_file);
  EXPECT_GT(quiet.size(), 100000);
  EXPECT_TRUE(quiet == ReadFile(file)) << output;
}

TEST(ElasticTrain, ChecksItsFlags) {
  ExpectError({getenv("TRAIN"), "--nproc_per_node=9"}, "--nproc_per_node=9: expected at most 8");
  ExpectError({getenv("TRAIN"), "--nproc_per_node=1", "--data_dir=/none"}, "/none");
}

}  // namespace
}  // namespace lockstep::examples
