// launch status and launch drain, with launchers that run jobs of one node.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/status/status_folder.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ReadFile;
using ::testing::StartsWith;

constexpr char kSleeps[] = "echo $$ > $D/$RANK; exec sleep 200";
constexpr char kHead[] = "\n RANK  LOCAL      PID  STATE          FOR       STEP  STEPS/S\n";

class StatusTest : public testing::LaunchProgramTest {
 protected:
  // Runs `launch <line>`, where bash reads the line. What it prints is answer_.
  int Ask(const std::string& line) {
    const int code = RunScript(absl::StrCat("$LAUNCH ", line, " > $D/answer 2>&1"));
    answer_ = ReadFile(folder_ + "answer");
    return code;
  }

  // Returns whether the command succeeds in time. A launcher listens once its ranks have started.
  bool Soon(const std::string& line) {
    return Eventually([&] { return Ask(line) == 0; }, absl::Seconds(60));
  }

  bool HasSocket(pid_t pid) const {
    return access(absl::StrCat(folder_, "lockstep/", SocketName(pid)).c_str(), F_OK) == 0;
  }

  // Ends a job that the test has started.
  void End(pid_t pid) {
    kill(pid, SIGTERM);
    EXPECT_EQ(Wait(pid), 143);
  }

  std::string answer_;
};

TEST_F(StatusTest, ShowsTheRanksOfAJob) {
  const pid_t pid = Start({"--nproc_per_node=2", "--max_restarts=3", "--rdzv_id=bert", "bash", "-c", kSleeps});
  const pid_t first = AwaitPid(folder_ + "0"), second = AwaitPid(folder_ + "1");
  ASSERT_TRUE(Soon("status")) << answer_;
  EXPECT_THAT(answer_,
              MatchesRegex(absl::StrCat("job bert: running for [0-9ms]+, generation 1, 0 of 3 restarts\n"
                                        "launcher ",
                                        pid, " on host [^ ]+ for [0-9ms]+: bash -c echo .*\n", kHead, "    0      0 +",
                                        first, "  running +[0-9ms]+          -        -\n    1      1 +", second,
                                        "  running +[0-9ms]+          -        -\n")));
  for (const std::string& name : {absl::StrCat(pid), std::string("bert")}) {
    EXPECT_EQ(Ask("status --json " + name), 0);
    EXPECT_THAT(answer_, MatchesRegex("\\{.*\\}\n"));
    EXPECT_THAT(answer_, HasSubstr(absl::StrCat("\"job\":\"bert\",")));
    EXPECT_THAT(answer_, HasSubstr(absl::StrCat("\"pid\":", pid, ",")));
    EXPECT_THAT(answer_,
                HasSubstr(absl::StrCat("\"rank\":1,\"local_rank\":1,\"pid\":", second, ",\"state\":\"running\"")));
  }
  EXPECT_EQ(Ask("status 1"), 1);
  EXPECT_THAT(answer_, HasSubstr("no job has the pid or the name \"1\""));
  End(pid);
  EXPECT_FALSE(HasSocket(pid));
}

TEST_F(StatusTest, SaysThatNoJobRuns) {
  for (const char* command : {"status", "status --json", "top", "drain", "status 1"}) {
    EXPECT_EQ(Ask(command), 1) << command;
    EXPECT_EQ(answer_, "launch: no job of this user runs on this host\n") << command;
  }
}

TEST_F(StatusTest, CountsRestarts) {
  const pid_t pid = Start(
      {"--max_restarts=2", "bash", "-c", absl::StrCat("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; ", kSleeps)});
  const pid_t rank = AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  EXPECT_THAT(answer_, HasSubstr(", generation 2, 1 of 2 restarts\n"));
  EXPECT_THAT(answer_, HasSubstr(absl::StrCat(rank, "  running")));
  End(pid);
}

TEST_F(StatusTest, ShowsHowARankEndedWhileAnotherOneRuns) {
  const pid_t pid = Start({"--nproc_per_node=2", "bash", "-c", absl::StrCat("[ $RANK = 1 ] && exit 0; ", kSleeps)});
  ASSERT_TRUE(
      Eventually([&] { return Ask("status") == 0 && absl::StrContains(answer_, "  exited 0 "); }, absl::Seconds(60)))
      << answer_;
  End(pid);
}

TEST_F(StatusTest, OfSeveralJobsOneIsChosen) {
  const pid_t a = Start({"--rdzv_id=a", "bash", "-c", kSleeps});
  AwaitPid(folder_ + "0");
  const pid_t b = Start({"--rdzv_id=b", "--nproc_per_node=2", "bash", "-c", kSleeps});
  AwaitPid(folder_ + "1");
  ASSERT_TRUE(Soon("status a") && Soon("status b")) << answer_;
  EXPECT_EQ(Ask("status"), 0);
  EXPECT_THAT(answer_, MatchesRegex("     PID  JOB .*\n.* a  .* running .* 1 of 1  bash .*\n"
                                    ".* b  .* running .* 2 of 2  bash .*\n"
                                    "2 jobs run here; launch status [0-9]+ shows the first one\n"))
      << answer_;
  EXPECT_EQ(Ask("drain"), 1);
  EXPECT_THAT(answer_, HasSubstr("2 jobs run here; choose one: launch drain "));
  EXPECT_EQ(Ask(absl::StrCat("status ", b)), 0);
  EXPECT_THAT(answer_, HasSubstr("job b: "));
  EXPECT_EQ(Ask("drain a"), 0) << answer_;
  EXPECT_EQ(Wait(a), 143);
  EXPECT_EQ(Ask("status"), 0);
  EXPECT_THAT(answer_, HasSubstr("job b: "));
  End(b);
}

TEST_F(StatusTest, TheSocketOfAKilledLauncherIsRemoved) {
  const pid_t pid = Start({"bash", "-c", kSleeps});
  AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid), -SIGKILL);
  // One that dies while it is asked keeps its socket until the next question.
  EXPECT_TRUE(Eventually([&] { return Ask("status") == 1 && !HasSocket(pid); }, absl::Seconds(60)));
  EXPECT_EQ(answer_, "launch: no job of this user runs on this host\n");
}

TEST_F(StatusTest, ALauncherThatIsStoppedDoesNotHangTheCommand) {
  const pid_t pid = Start({"bash", "-c", "echo $PPID > $D/launcher; exec sleep 200"});
  const pid_t launcher = AwaitPid(folder_ + "launcher");
  ASSERT_TRUE(Soon("status")) << answer_;
  kill(launcher, SIGSTOP);
  EXPECT_EQ(Ask("status"), 1);
  EXPECT_EQ(answer_,
            absl::StrCat("launch: the launcher with pid ", pid, " does not answer within 2s; is it stopped?\n"));
  kill(launcher, SIGCONT);
  EXPECT_TRUE(Soon("status")) << answer_;
  End(pid);
}

TEST_F(StatusTest, StoppedLaunchersOfOtherJobsDelayOnlyThoseWhoAskForAll) {
  const pid_t running = Start({"--rdzv_id=runs", "bash", "-c", kSleeps});
  AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  std::vector<pid_t> jobs, launchers;
  for (const char* name : {"x", "y", "z"}) {
    jobs.push_back(Start({"bash", "-c", absl::StrCat("echo $PPID > $D/", name, "; exec sleep 200")}));
    launchers.push_back(AwaitPid(folder_ + name));
    ASSERT_TRUE(Soon(absl::StrCat("status ", jobs.back()))) << answer_;
  }
  for (const pid_t launcher : launchers) kill(launcher, SIGSTOP);
  absl::Time began = absl::Now();
  EXPECT_EQ(Ask(absl::StrCat("status ", running)), 0) << answer_;
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
  began = absl::Now();
  EXPECT_EQ(Ask("status runs"), 0) << answer_;
  EXPECT_LT(absl::Now() - began, absl::Seconds(4)) << "each of them has 2 s, at the same time";
  for (const pid_t launcher : launchers) kill(launcher, SIGCONT);
  for (const pid_t job : jobs) End(job);
  End(running);
}

TEST_F(StatusTest, ClientsThatSayNothingDoNotDelayTheJob) {
  const pid_t pid = Start({"--nproc_per_node=2", "bash", "-c",
                           "echo $$ > $D/$RANK; [ $RANK = 1 ] && exec sleep 200; until [ -e $D/go ]; do sleep 0.01; "
                           "done; exit 5"});
  AwaitPid(folder_ + "1");
  ASSERT_TRUE(Soon("status")) << answer_;
  const auto folder = OpenStatusFolder(folder_ + "lockstep", false);
  ASSERT_TRUE(folder.ok()) << folder.status();
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(ConnectTo(PathIn(*folder, SocketName(pid))));
  }
  EXPECT_TRUE(Soon("status")) << answer_;
  EXPECT_EQ(RunScript("touch $D/go"), 0);
  EXPECT_EQ(Wait(pid), 5);
}

TEST_F(StatusTest, AJobWithoutAFolderForItsSocketRunsAndSaysSo) {
  EXPECT_EQ(RunScript("mkdir $D/x && touch $D/x/lockstep && XDG_RUNTIME_DIR=$D/x $LAUNCH true"), 0);
  EXPECT_THAT(Err(),
              MatchesRegex("launch: `launch status` will not find this job: folder .*/x/lockstep must be a folder "
                           "and not a link\n"));
}

TEST_F(StatusTest, DrainIsASigtermAndWaits) {
  const pid_t pid = Start({"--grace=30", "bash", "-c",
                           "trap 'sleep 1; echo saved > $D/saved; exit 0' TERM; echo $$ > $D/0; while :; do sleep "
                           "0.01; done"});
  AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  EXPECT_EQ(Ask("drain"), 0) << answer_;
  EXPECT_THAT(answer_, MatchesRegex("launch: host [^ ]+ leaves the job; its ranks have 30s to end\n"
                                    "launch: it has left after [0-9.]+m?s\n"));
  EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n");
  EXPECT_EQ(Wait(pid), 143);
}

TEST_F(StatusTest, ASecondDrainLeavesTheRanksTheirTime) {
  const pid_t pid = Start({"--grace=60", "bash", "-c",
                           "trap 'touch $D/asked; until [ -e $D/go ]; do sleep 0.01; done; touch $D/saved; exit 0' "
                           "TERM; echo $$ > $D/0; while :; do sleep 0.01; done"});
  AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  EXPECT_EQ(
      Ask("drain & until [ -e $D/asked ]; do sleep 0.01; done; $LAUNCH status; (sleep 1; touch $D/go) & $LAUNCH drain"),
      0);
  EXPECT_THAT(answer_, HasSubstr("it has left after"));
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_EQ(access((folder_ + "saved").c_str(), F_OK), 0) << "it got SIGKILL";
}

TEST_F(StatusTest, AnotherHostNeedsARendezvous) {
  const pid_t pid = Start({"bash", "-c", kSleeps});
  AwaitPid(folder_ + "0");
  ASSERT_TRUE(Soon("status")) << answer_;
  EXPECT_EQ(Ask("drain somewhere"), 1);
  EXPECT_THAT(answer_, HasSubstr("the nodes of this job do not find each other"));
  EXPECT_EQ(Ask("resize 2"), 1);
  EXPECT_THAT(answer_, HasSubstr("the nodes of this job do not find each other"));
  End(pid);
}

TEST_F(StatusTest, CommandsHaveAHelpAndNameTheNearestWord) {
  for (const char* command : {"status", "top", "drain", "resize"}) {
    EXPECT_EQ(Ask(absl::StrCat(command, " --help")), 0);
    EXPECT_THAT(answer_, StartsWith(absl::StrCat("usage: launch ", command)));
  }
  EXPECT_EQ(Ask("--help"), 0);
  EXPECT_THAT(answer_, HasSubstr("launch status|top|drain|resize"));
  EXPECT_EQ(Ask("statsu"), 127);
  EXPECT_EQ(answer_, "launch: program \"statsu\" not found in PATH; did you mean launch status?\n");
  EXPECT_EQ(Ask("status --jsno"), 2);
  EXPECT_EQ(answer_,
            "launch: status: unknown flag --jsno; did you mean --json? launch status --help lists the flags\n");
  EXPECT_EQ(Ask("status a b"), 2);
  EXPECT_EQ(answer_, "launch: status: unexpected argument \"b\"; launch status --help shows how\n");
}

TEST_F(StatusTest, AProgramMayHaveTheNameOfACommand) {
  EXPECT_EQ(RunScript("L=$PWD/$LAUNCH; printf '#!/bin/sh\necho program $1\n' > $D/status; chmod +x $D/status; cd $D; "
                      "PATH=$D:$PATH\n"
                      "$L -- status 1; $L ./status 2; $L --nproc_per_node=1 status 3"),
            0);
  EXPECT_EQ(Out(), "program 1\nprogram 2\nprogram 3\n");
}

}  // namespace
}  // namespace lockstep::launch
