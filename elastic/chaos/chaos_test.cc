// A short run of the program that hurts a training.

#include <stdlib.h>
#include <sys/wait.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::chaos {
namespace {

using launch::testing::NewFolder;
using launch::testing::ReadFile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Runs the program; returns its exit code and its output.
int RunChaos(const std::string& flags, std::string* output) {
  const std::string out = absl::StrCat(NewFolder(), "out");
  const int status =
      system(absl::StrCat("exec ", getenv("CHAOS"), " --launch=", getenv("LAUNCH"), " --program=", getenv("TRAINING"),
                          " --data_dir=", getenv("TEST_SRCDIR"), "/lockstep_fashion_mnist ", flags, " > ", out, " 2>&1")
                 .c_str());
  *output = ReadFile(out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// More patience than the program has by default, as machines that test have other work.
TEST(Chaos, FortyFaultsDoNotChangeTheFile) {
  std::string output;
  EXPECT_EQ(RunChaos("--faults=40 --faults_per_second=4 --hidden=64 --pause_us=5000 --hang_seconds=30", &output), 0)
      << output;
  EXPECT_THAT(output, HasSubstr("40 faults, "));
  EXPECT_THAT(output, HasSubstr("; nothing is left of the job\n"));
  EXPECT_THAT(output, ContainsRegex("\\| SIGKILL of rank 0 \\| [23] \\|"));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

constexpr char kEndings[] = "--hidden=64 --hang_seconds=30";

TEST(Chaos, FaultsAfterTheLastStepDoNotChangeTheFile) {
  std::string output;
  EXPECT_EQ(RunChaos(absl::StrCat("--endings=8 ", kEndings), &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("8 endings, "));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

TEST(Chaos, FaultsAfterTheLastStepOfTwoHostsDoNotChangeTheFile) {
  std::string output;
  EXPECT_EQ(RunChaos(absl::StrCat("--endings=4 --hosts=2 --ranks=2 --rdzv=tcp ", kEndings), &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("4 endings, "));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

// The quiet run has a plain optimizer, and a replicated model.
TEST(Chaos, AShardedOptimizerOrModelHasTheBitsOfAPlainOne) {
  for (const char* flag : {"--sharded", "--sharded_model --gpt"}) {
    SCOPED_TRACE(flag);
    std::string output;
    EXPECT_EQ(
        RunChaos(absl::StrCat(flag, " --faults=10 --faults_per_second=4 --hidden=64 --pause_us=5000 --hang_seconds=30"),
                 &output),
        0)
        << output;
    EXPECT_THAT(output, HasSubstr("10 faults, "));
    EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
  }
}

constexpr char kHosts[] = "--hosts=3 --ranks=2 --faults_per_second=4 --hidden=64 --pause_us=5000 --hang_seconds=30";

TEST(Chaos, LaunchersMayDieAndHostsMayBeDrained) {
  std::string output;
  EXPECT_EQ(RunChaos(absl::StrCat(kHosts, " --rdzv=tcp --faults=6 --only=launch"), &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("6 faults, "));
  EXPECT_THAT(output, ContainsRegex("\\| SIGKILL of a launcher while another host joins \\| 1 \\|"));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

TEST(Chaos, TheLauncherThatLeadsMayDie) {
  if (system("command -v etcd > /dev/null") != 0) GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
  std::string output;
  EXPECT_EQ(RunChaos(absl::StrCat(kHosts, " --faults=1 --only=leads"), &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("1 faults, "));
  EXPECT_THAT(output, HasSubstr("; nothing is left of the job\n"));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

TEST(Chaos, HostsThatDoNotReachEachOtherDoNotChangeTheFile) {
  if (system("command -v etcd > /dev/null") != 0) GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
  if (system("unshare --net true 2> /dev/null") != 0) GTEST_SKIP() << "no network namespaces here";
  std::string output;
  EXPECT_EQ(RunChaos("--long --network --hosts=3 --ranks=1 --faults=3 --only=packets --hidden=64 --pause_us=40000 "
                     "--hang_seconds=120 --seed=2",
                     &output),
            0)
      << output;
  EXPECT_THAT(output, HasSubstr("3 faults, "));
  EXPECT_THAT(output, HasSubstr("chaos: the files are the same\n"));
}

TEST(Chaos, ChecksItsFlags) {
  std::string output;
  EXPECT_EQ(RunChaos("--ranks=1", &output), 1);
  EXPECT_THAT(output, HasSubstr("--ranks=1: expected "));
  EXPECT_EQ(RunChaos("--hosts=3 --ranks=3", &output), 1);
  EXPECT_THAT(output, HasSubstr("--ranks=3: expected "));
  EXPECT_EQ(RunChaos("--hosts=2 --rdzv=static", &output), 1);
  EXPECT_THAT(output, HasSubstr("--rdzv=static: expected etcd-v3 or tcp"));
  EXPECT_EQ(RunChaos("--only=love", &output), 1);
  EXPECT_THAT(output, HasSubstr("--only=love: expected a part of the name of a fault"));
}

}  // namespace
}  // namespace lockstep::elastic::chaos
