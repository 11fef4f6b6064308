#include "lockstep/launch/process/keeper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/process/job_cgroup.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using testing::ReadFile;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr int kKilled = 128 + SIGKILL;

class KeeperTest : public ::testing::Test {
 protected:
  // Forks the three processes. The launcher writes the pids to files, and then does `launcher`.
  void Start(const std::function<absl::Status()>& on_killed, const std::function<int()>& launcher,
             const std::string& cgroup = "") {
    first_ = fork();
    if (first_ != 0) return;
    if (!freopen((folder_ + "err").c_str(), "w", stderr)) _exit(1);
    const absl::StatusOr<pid_t> keeper = ForkLauncher(0, nullptr, cgroup, on_killed);
    if (!keeper.ok()) _exit(1);
    Append("second", std::to_string(*keeper));
    Append("launcher", std::to_string(getpid()));
    _exit(launcher());
  }

  void Append(const char* file, const std::string& line) const {
    std::ofstream(folder_ + file, std::ios::app) << line + "\n";
  }
  pid_t second() const { return AwaitPid(folder_ + "second"); }
  pid_t launcher() const { return AwaitPid(folder_ + "launcher"); }

  // The first keeper's exit code.
  int Wait() const {
    int status = 0;
    waitpid(first_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  static int Sleep() {
    for (;;) pause();
  }

  const std::string folder_ = testing::NewFolder();
  pid_t first_ = 0;
};

class KilledTest : public KeeperTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Process, KilledTest, ::testing::Values(0, 1, 2));

TEST_P(KilledTest, OneKeeperCallsOnceTheLauncherHasEnded) {
  Start(
      [&] {
        Append("calls", Gone(launcher()) ? "the launcher has ended" : "the launcher runs");
        return absl::OkStatus();
      },
      Sleep);
  const pid_t three[] = {first_, second(), launcher()};
  kill(three[GetParam()], SIGKILL);
  EXPECT_EQ(Wait(), GetParam() == 0 ? -SIGKILL : kKilled);
  for (const pid_t pid : three) EXPECT_TRUE(Eventually([&] { return Gone(pid); }, kPatience)) << pid;
  EXPECT_EQ(ReadFile(folder_ + "calls"), "the launcher has ended\n");
}

TEST_F(KeeperTest, NobodyCallsIfTheLauncherExits) {
  Start(
      [&] {
        Append("calls", "call");
        return absl::OkStatus();
      },
      [] { return 3; });
  EXPECT_EQ(Wait(), 3);
  EXPECT_EQ(ReadFile(folder_ + "calls"), "");
}

TEST_F(KeeperTest, AnErrorOfTheCallIsPrinted) {
  Start([] { return absl::UnavailableError("nobody answers"); }, Sleep);
  kill(launcher(), SIGKILL);
  EXPECT_EQ(Wait(), kKilled);
  EXPECT_THAT(ReadFile(folder_ + "err"), HasSubstr(" was killed by signal 9 (SIGKILL); the ranks and all that they "
                                                   "started were killed\nlaunch: nobody answers\n"));
}

// It would tell other hosts of their deaths, and start others.
TEST_F(KeeperTest, TheLauncherIsKilledBeforeTheRanks) {
  const JobCgroup cgroup = CreateJobCgroup();
  if (cgroup.folder.empty()) GTEST_SKIP() << "no cgroup of version 2 can be created here";
  const auto launcher = [&] {
    for (int rank = 0; rank < 20; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) Sleep();
      std::ofstream(cgroup.folder + "/cgroup.procs") << pid;
    }
    Append("ranks", std::to_string(getpid()));
    waitpid(-1, nullptr, 0);
    Append("seen", "a rank has ended");
    return Sleep();
  };
  Start(nullptr, launcher, cgroup.folder);
  AwaitPid(folder_ + "ranks");
  kill(first_, SIGKILL);
  EXPECT_EQ(Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Gone(second()); }, kPatience));
  EXPECT_EQ(ReadFile(folder_ + "seen"), "");
}

TEST_F(KeeperTest, ACallThatCrashesChangesNothing) {
  Start([]() -> absl::Status { abort(); }, Sleep);
  kill(launcher(), SIGKILL);
  EXPECT_EQ(Wait(), kKilled);
}

TEST_F(KeeperTest, ACallThatHangsIsKilled) {
  Start(
      [&]() -> absl::Status {
        Append("call", std::to_string(getpid()));
        Sleep();
        return absl::OkStatus();
      },
      Sleep);
  kill(launcher(), SIGKILL);
  const absl::Time start = absl::Now();
  EXPECT_EQ(Wait(), kKilled);
  EXPECT_LT(absl::Now() - start, kPatience);
  EXPECT_TRUE(Gone(AwaitPid(folder_ + "call")));
}

}  // namespace
}  // namespace lockstep::launch
