// Programs end with the same file on any number of ranks, and whoever dies.

#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::models::exported {
namespace {

using ::testing::HasSubstr;

class ElasticProgram : public launch::testing::LaunchProgramTest {
 protected:
  void TearDown() override {
    for (const char* name : {"KILLS", "NAME", "PROGRAM", "SHAPE", "SHARDED"}) unsetenv(name);
  }

  void UseConvolutions() {
    setenv("PROGRAM", "examples/exported/net.pt2", 1);
    setenv("SHAPE", "4,1,28,28", 1);
  }
  void UseDropout() {
    setenv("PROGRAM", "models/exported/testdata/programs.pt2", 1);
    setenv("NAME", "train", 1);
    setenv("SHAPE", "4,2", 1);
  }

  // The saved program after training on so many ranks with these deaths, each of which has happened.
  std::string FileOf(int ranks, const std::string& kills = "") {
    setenv("KILLS", kills.c_str(), 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    EXPECT_EQ(Run({absl::StrCat("--nproc_per_node=", ranks), getenv("ELASTIC_TRAINING")}), 0) << Err();
    for (const std::string& kill : std::vector<std::string>(absl::StrSplit(kills, ", ", absl::SkipEmpty())))
      EXPECT_EQ(rmdir((folder_ + kill).c_str()), 0) << "nobody was killed: " << kill << "\n" << Err();
    const std::string path = folder_ + "trained.pt2", file = launch::testing::ReadFile(path);
    unlink(path.c_str());
    return file;
  }

  void ExpectTheSameFileOnAnyNumberOfRanks() {
    const std::string expected = FileOf(1);
    EXPECT_GT(expected.size(), 1000);
    for (const int ranks : {2, 3, 5}) EXPECT_TRUE(FileOf(ranks) == expected) << ranks << " ranks";
  }
};

TEST_F(ElasticProgram, WithConvolutionsEndsWithTheSameFileOnAnyNumberOfRanks) {
  UseConvolutions();
  ExpectTheSameFileOnAnyNumberOfRanks();
}

TEST_F(ElasticProgram, WithDropoutEndsWithTheSameFileOnAnyNumberOfRanks) {
  UseDropout();
  ExpectTheSameFileOnAnyNumberOfRanks();
}

TEST_F(ElasticProgram, WithConvolutionsEndsWithTheSameFileAfterDeaths) {
  UseConvolutions();
  const std::string quiet = FileOf(1);
  EXPECT_TRUE(FileOf(3, "0 of step 3") == quiet);
  EXPECT_TRUE(FileOf(5, "4 of step 2, 1 of step 9, 2 of step 17") == quiet);
  EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL); generation 2 has 4 ranks\n"));
}

TEST_F(ElasticProgram, WithDropoutEndsWithTheSameFileAfterDeaths) {
  UseDropout();
  const std::string quiet = FileOf(2);
  EXPECT_TRUE(FileOf(3, "2 of step 5, 3 of step 5") == quiet);  // two ranks at once
}

TEST_F(ElasticProgram, WithAShardedOptimizerEndsWithTheFileOfThePlainOne) {
  UseConvolutions();
  const std::string plain = FileOf(1);
  setenv("SHARDED", "1", 1);
  EXPECT_TRUE(FileOf(3, "0 of step 3, 4 of step 12") == plain);
}

}  // namespace
}  // namespace lockstep::models::exported
