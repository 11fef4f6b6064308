// No process that a rank started outlives the launch program, however that ends.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/process/job_cgroup.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_WITH_SANITIZER 1
#endif
#endif

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::ReadFile;

// A loaded machine takes seconds to end hundreds of processes.
constexpr absl::Duration kPatience = absl::Seconds(20);

// parent_of PID
constexpr char kParentOf[] = R"(
    parent_of() { while read key value; do [ $key != PPid: ] || echo $value; done < /proc/$1/status; }
)";

// A rank with a child in its own group, one in another session, and one that has been forked twice, which ignores
// SIGTERM. Their pids are in $D/child, $D/session and $D/daemon.
constexpr char kStartThree[] = R"(
    sleep 1000 & echo $! > $D/child
    setsid sh -c 'echo $$ > $D/session; exec sleep 1000' &
    (setsid sh -c 'trap "" TERM; echo $$ > $D/daemon; while :; do sleep 1; done' & )
    until [ -s $D/child -a -s $D/session -a -s $D/daemon ]; do sleep 0.01; done; echo $$ > $D/rank
)";

// The parameter is a part of a script that comes before $LAUNCH. Every test runs with the cgroup that the launcher
// makes if it may, and without one.
class LaunchOrphansTest : public testing::LaunchProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // Whatever becomes of its parents, each descendant has the environment of the first.
  std::vector<pid_t> Processes() const {
    std::vector<pid_t> found;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
    while (const dirent* entry = readdir(folder.get())) {
      pid_t pid;
      if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
      const std::string environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"));
      if (absl::StrContains(environment, absl::StrCat("D=", folder_)) && !Gone(pid)) found.push_back(pid);
    }
    return found;
  }

  // Starts the launcher with ranks that run `script`. Its pid is in $D/launch.
  pid_t StartRanks(const std::string& script, const std::string& flags = "") {
    setenv("SCRIPT", absl::StrCat(kParentOf, script).c_str(), 1);
    return StartScript(absl::StrCat("echo $$ > $D/launch; exec ", GetParam(), " $LAUNCH ", flags,
                                    " bash -c 'cat /proc/self/cgroup > $D/cgroup; eval \"$SCRIPT\"'"));
  }

  void ExpectNothingLeft() const {
    EXPECT_TRUE(Eventually([&] { return Processes().empty(); }, kPatience));
    EXPECT_THAT(Processes(), IsEmpty());
    EXPECT_TRUE(Eventually([&] { return !CgroupExists(); }, kPatience)) << ReadFile(folder_ + "cgroup");
  }

  bool IsInJobCgroup() const { return absl::StrContains(ReadFile(folder_ + "cgroup"), "/lockstep-launch-"); }

  // Returns whether the folder with the name of the rank's cgroup exists in a cgroup file system.
  bool CgroupExists() const {
    for (const absl::string_view line : absl::StrSplit(ReadFile(folder_ + "cgroup"), '\n')) {
      if (!absl::StartsWith(line, "0::/") || !absl::StrContains(line, "/lockstep-launch-")) continue;
      for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        if (access(absl::StrCat(root, line.substr(3)).c_str(), F_OK) == 0) return true;
      }
    }
    return false;
  }

  // Returns whether a cgroup of the kind that the launcher makes may be created.
  static bool MayCreateCgroup() {
    const JobCgroup cgroup = CreateJobCgroup();
    RemoveJobCgroup(cgroup.folder, absl::Seconds(1));
    return !cgroup.folder.empty();
  }

  pid_t PidIn(const char* file) const { return AwaitPid(folder_ + file); }
};

INSTANTIATE_TEST_SUITE_P(Cgroup, LaunchOrphansTest, ::testing::Values(""));
// In a mount namespace that hides the cgroups. Without the right to one, it is the same test again.
INSTANTIATE_TEST_SUITE_P(NoCgroup, LaunchOrphansTest, ::testing::Values(R"(
    $(unshare -m true 2> /dev/null && echo unshare -m) bash -c '
        mount -t tmpfs none /sys/fs/cgroup 2> /dev/null; exec "$@"' sh)"));

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSuccess) {
  const pid_t launch = StartRanks(kStartThree, "--grace=1");
  EXPECT_EQ(Wait(launch), 0);
  EXPECT_EQ(Err(), "");
  for (const char* file : {"child", "session", "daemon"}) EXPECT_TRUE(Gone(PidIn(file))) << file;
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(CgroupExists());
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterAFailure) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "exit 3"), "--grace=1");
  EXPECT_EQ(Wait(launch), 3);
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 0 \\(local rank 0, pid [0-9]+\\) exited with code 3\n"));
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(CgroupExists());
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterASignal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const pid_t launch = StartRanks(absl::StrCat("rm -f $D/*; ", kStartThree, "exec sleep 1000"), "--grace=1");
    ASSERT_TRUE(PidIn("rank"));
    kill(launch, signal);
    EXPECT_EQ(Wait(launch), 128 + signal);
    EXPECT_THAT(Processes(), IsEmpty());
    unlink((folder_ + "rank").c_str());
  }
}

TEST_P(LaunchOrphansTest, ProcessesInOtherSessionsGetSigtermBeforeSigkill) {
  const pid_t launch = StartRanks(R"(
      setsid bash -c 'trap "sleep 0.2; echo saved > $D/saved; exit" TERM; echo $$ > $D/session
          while :; do sleep 0.01; done' &
      until [ -s $D/session ]; do sleep 0.01; done)",
                                  "--grace=60");
  EXPECT_EQ(Wait(launch), 0);
  EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n");
}

// A second signal would make the inner launcher kill its ranks at once.
TEST_P(LaunchOrphansTest, ALauncherInARankIsToldOnce) {
  for (const char* before : {"exec", ":;"}) {
    const pid_t launch = StartRanks(absl::StrCat("rm -f $D/saved; ", before, R"( $LAUNCH --grace=60 bash -c '
        trap "sleep 1; echo saved > $D/saved; exit" TERM; echo $$ > $D/inner; while :; do sleep 0.01; done')"),
                                    "--grace=60");
    ASSERT_TRUE(PidIn("inner"));
    kill(launch, SIGTERM);
    EXPECT_EQ(Wait(launch), 143);
    EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n") << before;
    EXPECT_THAT(Processes(), IsEmpty());
    unlink((folder_ + "inner").c_str());
  }
}

TEST_P(LaunchOrphansTest, AStoppedProcessInAnotherSessionIsKilledAtOnce) {
  const absl::Time start = absl::Now();
  const pid_t launch = StartRanks(R"(
      setsid sh -c 'echo $$ > $D/session; kill -STOP $$; sleep 1000' &
      until [ -s $D/session ] && grep -q ') T' /proc/$(cat $D/session)/stat; do sleep 0.01; done)",
                                  "--grace=60");
  EXPECT_EQ(Wait(launch), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  ExpectNothingLeft();
}

TEST_P(LaunchOrphansTest, NoneIsLeftBetweenRestarts) {
  const pid_t launch = StartRanks(R"([ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec test ! -e /proc/$(cat $D/session)
      setsid sh -c 'echo $$ > $D/session; exec sleep 1000' & until [ -s $D/session ]; do sleep 0.01; done; exit 3)",
                                  "--max_restarts=1");
  EXPECT_EQ(Wait(launch), 0) << Err();
  EXPECT_THAT(Err(), HasSubstr("restart 1 of 1"));
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSigkillOfTheKeeper) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "trap '' TERM; while :; do sleep 1; done"), "--grace=60");
  ASSERT_TRUE(PidIn("rank"));
  kill(PidIn("launch"), SIGKILL);
  EXPECT_EQ(Wait(launch), -SIGKILL);
  ExpectNothingLeft();
  EXPECT_THAT(Err(), MatchesRegex("launch: pid [0-9]+, which kept the launcher, was killed; the ranks and all that "
                                  "they started were killed\n"));
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSigkillOfTheLauncher) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "kill -9 $PPID; sleep 1000"), "--grace=60");
  EXPECT_EQ(Wait(launch), 137);
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(CgroupExists());
  EXPECT_THAT(Err(), MatchesRegex("launch: pid [0-9]+, which was the launcher, was killed by signal 9 \\(SIGKILL\\); "
                                  "the ranks and all that they started were killed\n"));
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSigkillOfTheSecondKeeper) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "kill -9 $(parent_of $PPID); sleep 1000"), "--grace=60");
  EXPECT_EQ(Wait(launch), 137);
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(CgroupExists());
  EXPECT_THAT(Err(), MatchesRegex("launch: pid [0-9]+, which kept the launcher, was killed by signal 9 \\(SIGKILL\\); "
                                  "the ranks and all that they started were killed\n"));
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSigkillByName) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "sleep 1000"), absl::StrCat("--rdzv_id=", folder_));
  ASSERT_TRUE(PidIn("rank"));
  std::vector<pid_t> named;
  for (const pid_t pid : Processes()) {
    const std::string command = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (absl::StrContains(command, absl::StrCat("--rdzv_id=", folder_))) named.push_back(pid);
  }
  EXPECT_EQ(named.size(), 2) << "the keeper and the launcher";
  for (const pid_t pid : named) kill(pid, SIGKILL);
  EXPECT_EQ(Wait(launch), -SIGKILL);
  ExpectNothingLeft();
}

TEST_P(LaunchOrphansTest, NoneIsLeftAfterSigkillOfTheProcessGroup) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, "sleep 1000"));
  ASSERT_TRUE(PidIn("rank"));
  kill(-launch, SIGKILL);
  EXPECT_EQ(Wait(launch), -SIGKILL);
  ExpectNothingLeft();
}

TEST_P(LaunchOrphansTest, ASecondKeeperThatIsStoppedNoticesSigkillOfTheFirst) {
  const pid_t launch = StartRanks(absl::StrCat(kStartThree, R"(
      keeper=$(parent_of $PPID); kill -STOP $keeper
      until grep -q ') T' /proc/$keeper/stat; do sleep 0.01; done; echo $$ > $D/stopped; sleep 1000)"));
  ASSERT_TRUE(PidIn("stopped"));
  kill(launch, SIGKILL);
  EXPECT_EQ(Wait(launch), -SIGKILL);
  ExpectNothingLeft();
}

// Each process of the storm forks one in a session of its own, and ends: every list of processes is outdated when it is
// read. Two of three steps fork a second one, up to 200 in all.
TEST_P(LaunchOrphansTest, AStormOfForksIsEnded) {
#ifdef LOCKSTEP_WITH_SANITIZER
  GTEST_SKIP() << "the storm outruns a launcher that is many times slower";
#endif
  const std::string storm = R"(
      cat > $D/storm <<'END'
      RANDOM=$1; echo $1 >> $D/born; [ $(wc -l < $D/born) -gt 5000 ] && exit
      [ $(wc -l < $D/born) -lt 200 -a $((RANDOM % 3)) != 0 ] && setsid bash $D/storm $((RANDOM)) &
      exec setsid -f bash $D/storm $((RANDOM))
END
      for i in 1 2 3; do setsid -f bash $D/storm $i; done; until [ $(wc -l < $D/born) -gt 20 ]; do sleep 0.01; done)";
  for (const char* end : {"exit 0", "exit 3", "kill -9 $PPID; sleep 1000"}) {
    const pid_t launch = StartRanks(absl::StrCat(storm, "\n", end), "--grace=0.1");
    EXPECT_EQ(Wait(launch), absl::StrContains(end, "kill") ? 137 : end[5] - '0');
    ExpectNothingLeft();
    unlink((folder_ + "born").c_str());
  }
}

TEST_P(LaunchOrphansTest, OrphansThatEndAreReaped) {
  const pid_t launch = StartRanks(R"(for i in {1..50}; do (true & ); done
      parents=$PPID\|$(parent_of $PPID)\|$(cat $D/launch)
      while grep -qsE "\) Z ($parents) " /proc/[0-9]*/stat; do sleep 0.01; done)");
  EXPECT_EQ(Wait(launch), 0);
}

TEST_P(LaunchOrphansTest, ManyRanksLeaveNothing) {
  const pid_t launch = StartRanks("true", "--nproc_per_node=200");
  EXPECT_EQ(Wait(launch), 0) << Err();
  EXPECT_EQ(Err(), "");
  EXPECT_THAT(Processes(), IsEmpty());
  EXPECT_FALSE(CgroupExists());
}

TEST_P(LaunchOrphansTest, RanksInheritTheirControlSocketAlone) {
  EXPECT_EQ(RunScript("exec ls -l /proc/self/fd"), 0);
  const std::string without = Out();
  EXPECT_EQ(Wait(StartRanks("exec ls -l /proc/self/fd")), 0);
  const std::vector<std::string> expected = absl::StrSplit(without, "->"), found = absl::StrSplit(Out(), "->");
  EXPECT_EQ(found.size(), expected.size() + 1) << Out();
  EXPECT_EQ(
      std::count_if(found.begin(), found.end(), [](const std::string& s) { return absl::StartsWith(s, " socket:"); }),
      1);
}

TEST_P(LaunchOrphansTest, TheRanksRunInACgroupOfTheJobOrInThatOfTheLauncher) {
  const pid_t launch = StartRanks("true");
  EXPECT_EQ(Wait(launch), 0);
  const bool hides_cgroups = !absl::string_view(GetParam()).empty();
  if (hides_cgroups && IsInJobCgroup()) GTEST_SKIP() << "cgroups cannot be hidden here: no right to a mount namespace";
  if (!hides_cgroups && !MayCreateCgroup()) GTEST_SKIP() << "no cgroup of version 2 can be created here";
  EXPECT_EQ(IsInJobCgroup(), !hides_cgroups) << ReadFile(folder_ + "cgroup");
  EXPECT_EQ(ReadFile(folder_ + "cgroup") == ReadFile("/proc/self/cgroup"), hides_cgroups);
  EXPECT_FALSE(CgroupExists());
}

// Tests that a keeper between the launcher and its caller changes nothing.
class LaunchKeeperTest : public LaunchOrphansTest {};

INSTANTIATE_TEST_SUITE_P(Cgroup, LaunchKeeperTest, ::testing::Values(""));

TEST_P(LaunchKeeperTest, PassesExitCodesOn) {
  for (const int code : {0, 1, 3, 255}) EXPECT_EQ(Wait(StartRanks(absl::StrCat("exit ", code))), code);
  EXPECT_EQ(Wait(StartRanks("kill -9 $$")), 137);
  EXPECT_EQ(Run({"--no-such-flag", "true"}), 2);
  EXPECT_EQ(Run({"no-such-program"}), 127);
}

TEST_P(LaunchKeeperTest, PassesUserSignalsOn) {
  const pid_t launch = StartRanks(R"(trap 'echo 1 >> $D/got' USR1; trap 'echo 2 >> $D/got; exit 0' USR2
      echo $$ > $D/rank; while :; do sleep 0.01; done)");
  ASSERT_TRUE(PidIn("rank"));
  kill(launch, SIGUSR1);
  EXPECT_TRUE(Eventually([&] { return ReadFile(folder_ + "got") == "1\n"; }, kPatience));
  kill(launch, SIGUSR2);
  EXPECT_EQ(Wait(launch), 0);
  EXPECT_EQ(ReadFile(folder_ + "got"), "1\n2\n");
}

TEST_P(LaunchKeeperTest, ASignalToTheProcessGroupIsCountedOnce) {
  const pid_t launch = StartRanks(R"(trap 'echo saving > $D/saving; sleep 1; echo saved > $D/saved; exit 0' INT
      echo $$ > $D/rank; while :; do sleep 0.01; done)",
                                  "--grace=60");
  ASSERT_TRUE(PidIn("rank"));
  kill(-launch, SIGINT);
  EXPECT_EQ(Wait(launch), 130);
  EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n");
}

TEST_P(LaunchKeeperTest, ASecondSignalKillsAtOnce) {
  const pid_t launch =
      StartRanks(R"(trap 'echo $$ > $D/saving' INT; echo $$ > $D/rank; while :; do sleep 0.01; done)", "--grace=600");
  ASSERT_TRUE(PidIn("rank"));
  kill(-launch, SIGINT);
  ASSERT_TRUE(PidIn("saving"));
  kill(-launch, SIGINT);
  EXPECT_EQ(Wait(launch), 130);
  EXPECT_THAT(Err(), HasSubstr("1 rank was ended by SIGKILL"));
}

TEST_P(LaunchKeeperTest, IgnoresWhatItWasStartedToIgnore) {
  const pid_t launch = StartScript(R"(trap '' HUP; exec $LAUNCH bash -c '
      echo $$ > $D/rank; until [ -e $D/end ]; do sleep 0.01; done')");
  ASSERT_TRUE(PidIn("rank"));
  kill(launch, SIGHUP);
  absl::SleepFor(absl::Milliseconds(200));
  UniqueFd(open((folder_ + "end").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(Wait(launch), 0);
}

// With job control, as in a terminal. 148 says that the job has been stopped by SIGTSTP.
TEST_P(LaunchKeeperTest, StopsAndGoesOnAsAJobOfAShell) {
  EXPECT_EQ(RunScript(R"(set -m
      $LAUNCH bash -c 'echo $$ > $D/rank; until [ -e $D/end ]; do sleep 0.01; done; exit 5' &
      until [ -s $D/rank ]; do sleep 0.01; done
      kill -TSTP %1; wait %1; [ $? = 148 ] || exit 1
      touch $D/end; kill -CONT %1; wait %1)"),
            5);
}

// A shell that starts a process in the background and becomes the launcher.
TEST_P(LaunchKeeperTest, SparesEarlierChildren) {
  const pid_t launch = StartScript(R"(sleep 1000 & echo $! > $D/earlier
      exec $LAUNCH bash -c 'kill -9 $(grep PPid: /proc/$PPID/status | cut -f2); sleep 1000')");
  EXPECT_EQ(Wait(launch), 137);
  const pid_t earlier = PidIn("earlier");
  EXPECT_FALSE(Gone(earlier));
  EXPECT_EQ(Processes(), std::vector<pid_t>{earlier});
  kill(earlier, SIGKILL);
}

// As in a container. Without the right to a pid namespace, the script checks nothing.
TEST_P(LaunchKeeperTest, ReapsOrphansAsTheFirstProcess) {
  EXPECT_EQ(RunScript(R"(unshare -pf --mount-proc true 2> $D/refused || exit 0
      exec unshare -pf --mount-proc $LAUNCH bash -c '
          [ $(readlink /proc/1/exe) = $(readlink -f $LAUNCH) ] || exit 4
          for i in {1..20}; do (setsid sleep 0.0$i & ); done
          while grep -qsE "\) Z |\(sleep\) " /proc/[0-9]*/stat; do sleep 0.01; done; exit 7')"),
            access((folder_ + "refused").c_str(), F_OK) == 0 && !ReadFile(folder_ + "refused").empty() ? 0 : 7)
      << Err();
}

TEST_P(LaunchKeeperTest, AsTheFirstProcessTakesSignals) {
  const pid_t unshare = StartScript(R"(unshare -pf --mount-proc true 2> $D/refused || { echo $$ > $D/rank; exit 143; }
      exec unshare -pf --mount-proc bash -c 'exec $LAUNCH bash -c "
          echo \$\$ > \$D/rank; until [ -e \$D/end ]; do sleep 0.01; done"')");
  ASSERT_TRUE(PidIn("rank"));
  for (const pid_t pid : ProcessTree().ChildrenOf(unshare)) kill(pid, SIGTERM);
  EXPECT_EQ(Wait(unshare), 143);
}

// Processes that SIGKILL does not end. Both kinds are in one test, since the launcher waits 10 s for either.
class LaunchStuckTest : public LaunchOrphansTest {
 protected:
  void TearDown() override {
    if (stopped_ != 0) kill(stopped_, SIGKILL);
    std::ofstream(freezer_ + "freezer.state") << "THAWED";
    EXPECT_TRUE(Eventually([&] { return rmdir(freezer_.c_str()) == 0 || errno == ENOENT; }, kPatience));
    RemoveJobCgroup(CreateJobCgroup().folder, absl::Seconds(1));  // and with it what was left
  }

  // Expects that the launcher in $D/<name>.code has exited with 3, within the 10 s and little more.
  void ExpectExit(const std::string& name) const {
    EXPECT_TRUE(Eventually([&] { return ReadFile(folder_ + name + ".code") == "3\n"; }, absl::Seconds(30))) << name;
    EXPECT_LT(absl::Now() - began_, absl::Seconds(18)) << name;
  }

  // The first process of a pid namespace ends only when all others in it have been reaped. One of them becomes the
  // child of a process that is stopped. Its name is in $D/stuck.
  bool StartNamespace() {
    StartScript(R"(unshare -rpf true || exit 1
        $LAUNCH --grace=0.1 bash -c 'unshare -rpf sh -c "echo 1 > $D/inside; exec sleep 1000" & until [ -s $D/inside ]; do sleep 0.01; done
            cat /proc/self/cgroup > $D/cgroup; read stuck < /proc/$!/task/$!/children; echo $stuck > $D/stuck
            until [ -e $D/end ]; do sleep 0.01; done; exit 3' 2> $D/namespace.err; echo $? > $D/namespace.code)");
    if (!Eventually([&] { return access((folder_ + "stuck").c_str(), F_OK) == 0; })) return false;
    stopped_ = StartScript(
        "exec nsenter -t $(cat $D/stuck) -U -p --preserve-credentials sh -c 'echo 1 > $D/guest; exec sleep 1000'");
    if (!Eventually([&] { return access((folder_ + "guest").c_str(), F_OK) == 0; })) return false;
    kill(stopped_, SIGSTOP);
    return true;
  }

  // A cgroup of version 1 freezes rank 0.
  bool StartFreezer() {
    if (mkdir(freezer_.c_str(), 0700) != 0) return false;
    setenv("FREEZER", freezer_.c_str(), 1);
    StartScript(R"($LAUNCH --grace=0.1 --nproc_per_node=2 bash -c '
        [ $RANK = 0 ] && { echo $$ > $FREEZER/cgroup.procs; echo $$ > $D/frozen; exec sleep 1000; }
        until [ -s $D/frozen ]; do sleep 0.01; done; echo FROZEN > $FREEZER/freezer.state
        until grep -q FROZEN $FREEZER/freezer.state; do sleep 0.01; done
        until [ -e $D/end ]; do sleep 0.01; done; exit 3' 2> $D/freezer.err; echo $? > $D/freezer.code)");
    return true;
  }

  const std::string freezer_ = absl::StrCat("/sys/fs/cgroup/freezer/lockstep-test-", getpid(), "/");
  absl::Time began_;
  pid_t stopped_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Cgroup, LaunchStuckTest, ::testing::Values(""));

TEST_P(LaunchStuckTest, TheLauncherNamesWhatSigkillDoesNotEndAndExits) {
  const bool has_namespace = StartNamespace(), has_freezer = StartFreezer();
  const pid_t frozen = has_freezer ? PidIn("frozen") : 0;
  began_ = absl::Now();
  UniqueFd(open((folder_ + "end").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  if (has_namespace) {
    ExpectExit("namespace");
    EXPECT_THAT(ReadFile(folder_ + "namespace.err"),
                MatchesRegex(absl::StrCat("launch: rank 0 .*exited with code 3; SIGKILL did not end pid ",
                                          PidIn("stuck"), " \\(\"sleep\", state [A-Z]\\)\n")));
  }
  if (has_freezer) {
    ExpectExit("freezer");
    EXPECT_THAT(ReadFile(folder_ + "freezer.err"),
                HasSubstr(absl::StrCat("; SIGKILL did not end rank 0 (pid ", frozen, ", state D)")));
  }
  // The next launcher removes the cgroup that had to be left.
  if (has_namespace) {
    kill(stopped_, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return Gone(PidIn("stuck")); }, kPatience));
    EXPECT_EQ(Run({"true"}), 0);
    EXPECT_FALSE(CgroupExists());
  }
  if (!has_namespace && !has_freezer) GTEST_SKIP() << "no right to a user namespace, nor to a freezer of version 1";
}

}  // namespace
}  // namespace lockstep::launch
