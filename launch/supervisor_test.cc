#include "lockstep/launch/supervisor.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::Gone;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::NewFolder;
using ::testing::Not;
using testing::ReadFile;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Ranks are shell scripts, run in a folder ($D) of their own test.
class LaunchTest : public ::testing::Test {
 protected:
  absl::Status Run(const std::string& script) {
    options_.environment["D"] = folder_;
    const absl::Time start = absl::Now();
    const absl::Status status = Launch({"bash", "-c", script}, options_);
    took_ = absl::Now() - start;
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child has not been reaped";
    EXPECT_FALSE(absl::StrContains(status.message(), "\n"));
    return status;
  }

  const std::string folder_ = NewFolder();
  LaunchOptions options_;
  absl::Duration took_;
};

TEST_F(LaunchTest, IsOkWhenEveryRankIs) {
  options_.nproc_per_node = 3;
  EXPECT_EQ(Run("echo $RANK > $D/$RANK"), absl::OkStatus());
  for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(ReadFile(folder_ + rank), absl::StrCat(rank, "\n"));
}

TEST_F(LaunchTest, GivesEachRankItsPlace) {
  options_.nproc_per_node = 2;
  options_.nnodes = 2;
  options_.node_rank = 1;
  options_.master_addr = "10.0.0.1";
  options_.master_port = 29500;
  ASSERT_EQ(Run("env > $D/$LOCAL_RANK"), absl::OkStatus());
  const std::vector<std::string> lines = absl::StrSplit(ReadFile(folder_ + "1"), '\n');
  for (const char* line : {"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
                           "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"}) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines, Contains(StartsWith("LOCKSTEP_ERROR_FILE=/proc/")));
  EXPECT_THAT(lines, Not(Contains(StartsWith("LOCKSTEP_MASTER_LISTEN_FD"))));
  EXPECT_THAT(lines, Not(Contains(StartsWith("LOCKSTEP_JOB_SECRET")))) << "the other node could not know it";
}

TEST_F(LaunchTest, RanksOfOneNodeShareAFreshSecret) {
  options_.nproc_per_node = 2;
  std::set<std::string> secrets;
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_EQ(Run("echo $LOCKSTEP_JOB_SECRET > $D/$RANK"), absl::OkStatus());
    EXPECT_THAT(ReadFile(folder_ + "0"), MatchesRegex("[0-9a-f]{64}\n"));
    EXPECT_EQ(ReadFile(folder_ + "0"), ReadFile(folder_ + "1"));
    secrets.insert(ReadFile(folder_ + "0"));
  }
  EXPECT_EQ(secrets.size(), 2);
}

TEST_F(LaunchTest, ASecretThatWasGivenStays) {
  const std::string show = "echo $LOCKSTEP_JOB_SECRET,$LOCKSTEP_JOB_SECRET_FILE > $D/secret";
  options_.environment["LOCKSTEP_JOB_SECRET"] = "given";
  ASSERT_EQ(Run(show), absl::OkStatus());
  EXPECT_EQ(ReadFile(folder_ + "secret"), "given,\n");
  options_.environment.erase("LOCKSTEP_JOB_SECRET");
  setenv("LOCKSTEP_JOB_SECRET_FILE", "/a/file", 1);
  ASSERT_EQ(Run(show), absl::OkStatus());
  unsetenv("LOCKSTEP_JOB_SECRET_FILE");
  EXPECT_EQ(ReadFile(folder_ + "secret"), ",/a/file\n");
}

TEST_F(LaunchTest, RanksHaveNoStdinAndNoDescriptorsOfOurs) {
  char here[4096];
  ASSERT_EQ(Run("readlink /proc/self/fd/0 > $D/stdin; readlink /proc/$$/fd/* > $D/fds; pwd > $D/pwd"),
            absl::OkStatus());
  EXPECT_EQ(ReadFile(folder_ + "stdin"), "/dev/null\n");
  EXPECT_THAT(ReadFile(folder_ + "fds"), Not(ContainsRegex("memfd|pidfd")));
  EXPECT_EQ(ReadFile(folder_ + "pwd"), absl::StrCat(getcwd(here, sizeof(here)), "\n"));
}

TEST_F(LaunchTest, AllRanksAgreeOnAFreePort) {
  options_.nproc_per_node = 2;
  ASSERT_EQ(Run("echo $MASTER_ADDR $MASTER_PORT > $D/$RANK"), absl::OkStatus());
  EXPECT_THAT(ReadFile(folder_ + "0"), MatchesRegex("127.0.0.1 [1-9][0-9]+\n"));
  EXPECT_EQ(ReadFile(folder_ + "0"), ReadFile(folder_ + "1"));
}

TEST_F(LaunchTest, PassesTheListeningSocketToRankZeroAlone) {
  options_.nproc_per_node = 2;
  options_.pass_master_socket = true;
  // Rank 1 connects though nobody has accepted: the socket listens already.
  ASSERT_EQ(Run("echo $LOCKSTEP_MASTER_LISTEN_FD > $D/$RANK; readlink /proc/self/fd/${LOCKSTEP_MASTER_LISTEN_FD:-99} "
                ">> $D/$RANK;"
                "[ $RANK = 0 ] && sleep 0.3; [ $RANK = 0 ] || exec 5<>/dev/tcp/127.0.0.1/$MASTER_PORT"),
            absl::OkStatus());
  EXPECT_THAT(ReadFile(folder_ + "0"), MatchesRegex("[0-9]+\nsocket:.*\n"));
  EXPECT_EQ(ReadFile(folder_ + "1"), "\n");
}

TEST_F(LaunchTest, NamesTheRankThatExitsAndEndsTheOthers) {
  options_.nproc_per_node = 3;
  const absl::Status status = Run("[ $RANK = 1 ] && exit 3; echo $$ > $D/$RANK; exec sleep 60");
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 3; the other 2 ranks were ended"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(ExitCode(status), 3);
  EXPECT_LT(took_, absl::Seconds(1));
}

TEST_F(LaunchTest, NamesTheRankThatIsKilledAndLeavesNoProcess) {
  options_.nproc_per_node = 2;
  const absl::Status status = Run(R"(sleep 60 & echo $! > $D/grandchild$RANK; echo $$ > $D/$RANK
      while [ ! -s $D/0 ] || [ ! -s $D/1 ]; do sleep 0.01; done
      [ $RANK = 1 ] && kill -KILL $$; wait)");
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 1 \\(local rank 1, pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\); the other "
                           "rank was ended"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(FirstFailure(status)->pid, AwaitPid(folder_ + "1"));
  EXPECT_LT(took_, absl::Seconds(1));
  for (const char* file : {"0", "1", "grandchild0", "grandchild1"}) EXPECT_TRUE(Gone(AwaitPid(folder_ + file))) << file;
}

TEST_F(LaunchTest, ARankThatIgnoresSigtermGetsSigkillAfterTheGrace) {
  options_.nproc_per_node = 2;
  options_.grace = absl::Milliseconds(300);
  const absl::Status status = Run(R"([ $RANK = 1 ] && { while [ ! -s $D/0 ]; do sleep 0.01; done; exit 1; }
      trap '' TERM; echo $$ > $D/0; while :; do sleep 1; done)");
  EXPECT_THAT(Message(status),
              MatchesRegex(".* exited with code 1; the other rank was ended by SIGKILL after 3[0-9]0ms"));
  EXPECT_GE(took_, absl::Milliseconds(300));
  EXPECT_LT(took_, absl::Seconds(2));
  EXPECT_TRUE(Gone(AwaitPid(folder_ + "0")));
}

TEST_F(LaunchTest, AGrandchildHasTheGraceToo) {
  options_.nproc_per_node = 2;
  // The shell dies of SIGTERM at once; its child needs 0.3 s to save its work.
  const absl::Status status = Run(R"([ $RANK = 1 ] && { while [ ! -s $D/ready ]; do sleep 0.01; done; exit 1; }
      bash -c 'trap "sleep 0.3; echo saved > $D/saved; exit" TERM; echo 1 > $D/ready; while :; do sleep 0.01; done' & wait)");
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n");
}

TEST_F(LaunchTest, AStubbornGrandchildIsKilledToo) {
  options_.grace = absl::Milliseconds(200);
  EXPECT_EQ(
      Run(R"(bash -c 'trap "" TERM; echo $$ > $D/pid; while :; do sleep 1; done' & while [ ! -s $D/pid ]; do sleep 0.01; done)"),
      absl::OkStatus());
  EXPECT_TRUE(Gone(AwaitPid(folder_ + "pid")));
}

TEST_F(LaunchTest, APeersComplaintIsNotTheCause) {
  options_.nproc_per_node = 2;
  // Rank 0 sees rank 1 die and is the first whose end can be seen.
  const absl::Status status = Run(R"(echo $$ > $D/$RANK; while [ ! -s $D/0 ] || [ ! -s $D/1 ]; do sleep 0.01; done
      [ $RANK = 0 ] && exit 1; until grep -q "^State:.Z" /proc/$(cat $D/0)/status; do :; done; kill -SEGV $$; sleep 5)");
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 1 .* was killed by signal 11 \\(SIGSEGV\\); the other rank failed too; rank 0 exited "
                           "with code 1 [0-9]+ms before"));
}

TEST_F(LaunchTest, TheEarlierReportIsTheCause) {
  options_.nproc_per_node = 2;
  // Rank 1 reports first but takes longer to exit. On a busy machine the launcher may tell it to end before it does
  // ("failed"). Code 9 is FailedPrecondition.
  const absl::Status status = Run(R"(report() { printf 'LOCKSTEP1 9 %s 200\n%s' "$1" "$2" > $LOCKSTEP_ERROR_FILE; }
      echo $$ > $D/$RANK; while [ ! -s $D/0 ] || [ ! -s $D/1 ]; do sleep 0.01; done
      [ $RANK = 0 ] && { report 2000 'connection closed by peer'; exit 1; }
      report 1000 'no such data set'; while [ -e /proc/$(cat $D/0)/exe ]; do :; done; exit 1)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 .* (exited with code 1|failed): no such data set; the other rank "
                                            "failed too; rank 0: connection closed by peer"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LaunchTest, AReportWithoutAFailureChangesNothing) {
  EXPECT_EQ(Run("printf 'LOCKSTEP1 9 1 200\nnever mind' > $LOCKSTEP_ERROR_FILE"), absl::OkStatus());
}

TEST_F(LaunchTest, APythonRanksRecordIsRead) {
  const absl::Status status =
      Run(R"(echo '{"message": {"message": "ValueError: no", "extraInfo": {}}}' > $TORCHELASTIC_ERROR_FILE; exit 1)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* exited with code 1: ValueError: no"));
}

TEST_F(LaunchTest, ASignalToTheLauncherGoesToTheRanks) {
  options_.nproc_per_node = 2;
  std::thread killer([&] {
    AwaitPid(folder_ + "0"), AwaitPid(folder_ + "1");
    kill(getpid(), SIGINT);
  });
  const absl::Status status =
      Run("trap 'echo int > $D/got$RANK; exit 0' INT; echo $$ > $D/$RANK; while :; do sleep 0.01; done");
  killer.join();
  EXPECT_EQ(status.message(), "the launcher received signal 2 (SIGINT); 2 ranks were ended");
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ExitCode(status), 130);
  EXPECT_EQ(ReadFile(folder_ + "got0") + ReadFile(folder_ + "got1"), "int\nint\n");
}

TEST_F(LaunchTest, SigUsr1GoesToTheRanksWhichDecideThemselves) {
  options_.nproc_per_node = 2;
  std::thread killer([&] {
    AwaitPid(folder_ + "0"), AwaitPid(folder_ + "1");
    kill(getpid(), SIGUSR1);
  });
  const absl::Status status = Run(R"(trap 'echo saved > $D/got$RANK; [ $RANK = 0 ] && exit 75; sleep 60' USR1
      echo $$ > $D/$RANK; while :; do sleep 0.01; done)");
  killer.join();
  EXPECT_EQ(ExitCode(status), 75) << status;
  EXPECT_EQ(ReadFile(folder_ + "got0") + ReadFile(folder_ + "got1"), "saved\nsaved\n");
}

TEST_F(LaunchTest, ASecondSignalIsTheLast) {
  options_.grace = absl::Hours(1);
  std::thread killer([&] {
    AwaitPid(folder_ + "pid");
    kill(getpid(), SIGTERM);
    testing::Eventually([&] { return !ReadFile(folder_ + "got").empty(); });
    kill(getpid(), SIGTERM);
  });
  const absl::Status status = Run("trap 'echo term > $D/got' TERM; echo $$ > $D/pid; while :; do sleep 0.01; done");
  killer.join();
  EXPECT_THAT(Message(status),
              MatchesRegex("the launcher received signal 15 \\(SIGTERM\\); 1 rank was ended by SIGKILL( after .*ms)?"));
}

TEST_F(LaunchTest, LeavesHandlersAndMaskAsTheyWere) {
  struct sigaction before, after;
  sigset_t mask_before, mask_after;
  signal(SIGHUP, SIG_IGN);
  sigaction(SIGTERM, nullptr, &before);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  EXPECT_EQ(Run("kill -HUP $PPID; trap > $D/traps"), absl::OkStatus())
      << "an ignored SIGHUP stays ignored, as under nohup";
  sigaction(SIGTERM, nullptr, &after);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  for (int s = 1; s < NSIG; ++s) EXPECT_EQ(sigismember(&mask_before, s), sigismember(&mask_after, s)) << s;
  EXPECT_EQ(signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST_F(LaunchTest, LaunchesInSeveralThreadsAreIndependent) {
  const absl::Time start = absl::Now();
  absl::Status good, bad;
  std::thread first([&] { good = Launch({"sleep", "0.2"}); });
  std::thread second([&] { bad = Launch({"bash", "-c", "exit 4"}); });
  first.join(), second.join();
  EXPECT_EQ(good, absl::OkStatus());
  EXPECT_EQ(ExitCode(bad), 4);
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
}

TEST_F(LaunchTest, AProgramThatCannotBeExecutedIsNamed) {
  options_.nproc_per_node = 2;
  // The message is that of the status, whose code and exit code are the other two.
  const auto expect = [&](const std::string& program, const std::string& message, absl::StatusCode code,
                          int exit_code) {
    const absl::Status status = Launch({program}, options_);
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(ExitCode(status), exit_code);
  };
  constexpr auto kNotFound = absl::StatusCode::kNotFound, kDenied = absl::StatusCode::kPermissionDenied;
  expect("no-such-program", "program \"no-such-program\" not found in PATH", kNotFound, 127);
  expect("./no-such-program", "program \"./no-such-program\" not found", kNotFound, 127);
  expect("", "program \"\" not found in PATH", kNotFound, 127);
  expect("./a\nb\x1b[2J", "program \"./a\\nb\\x1b[2J\" not found", kNotFound, 127);
  expect(folder_, absl::StrCat("program \"", folder_, "\" is not an executable file"), kDenied, 126);
  const std::string text = folder_ + "text";
  ASSERT_EQ(Run("echo hello > $D/text; chmod +x $D/text"), absl::OkStatus());
  expect(text, absl::StrCat("program \"", text, "\" cannot be started: Exec format error"), kDenied, 126);
  ASSERT_EQ(Run("echo '#!/no-such-interpreter' > $D/text"), absl::OkStatus());
  expect(text, absl::StrCat("program \"", text, "\" cannot be started: there is no such interpreter as it names"),
         kNotFound, 127);
}

TEST_F(LaunchTest, ARanksOwnCode127IsNoMissingProgram) {
  for (const char* code : {"126", "127"}) {
    const absl::Status status = Run(absl::StrCat("exit ", code));
    EXPECT_THAT(Message(status), MatchesRegex(absl::StrCat("rank 0 .* exited with code ", code)));
    EXPECT_EQ(ExitCode(status), 1);
  }
}

TEST_F(LaunchTest, AStoppedRankIsKilledAtOnce) {
  options_.nproc_per_node = 2;
  options_.grace = absl::Minutes(1);
  const absl::Status status = Run(R"([ $RANK = 0 ] && { echo $$ > $D/0; kill -STOP $$; exit 0; }
      while ! grep -q ") T" /proc/$(cat $D/0)/stat; do sleep 0.01; done; exit 5)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 .* exited with code 5; the other rank was ended by SIGKILL; rank 0 "
                                            "\\(pid [0-9]+\\) was stopped"));
  EXPECT_LT(took_, absl::Seconds(3));
}

TEST_F(LaunchTest, ARankThatStaysStoppedWhenTheOthersHaveEndedIsNamed) {
  options_.nproc_per_node = 3;
  options_.stopped_patience = absl::Milliseconds(500);
  const absl::Status status = Run("[ $RANK = 1 ] && kill -STOP $$; exit 0");
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 \\(local rank 1, pid [0-9]+\\) failed: it was stopped, as by "
                                            "SIGSTOP, for 500ms after the other ranks had ended"));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ExitCode(status), 1);
  EXPECT_GT(took_, absl::Milliseconds(490));
  EXPECT_LT(took_, absl::Seconds(5));
}

TEST_F(LaunchTest, ARankThatIsStoppedForAWhileMayGoOn) {
  options_.nproc_per_node = 2;
  options_.stopped_patience = absl::Seconds(2);
  EXPECT_EQ(Run("[ $RANK = 1 ] && { (sleep 1; kill -CONT $$) & kill -STOP $$; sleep 1.5; }; exit 0"), absl::OkStatus());
}

TEST_F(LaunchTest, AStoppedRankIsKilledAtOnceWhenAStopIsAskedFor) {
  options_.grace = absl::Minutes(1);
  std::thread killer([&] {
    const pid_t rank = AwaitPid(folder_ + "0");
    testing::Eventually([&] { return absl::StrContains(ReadFile(absl::StrCat("/proc/", rank, "/stat")), ") T"); });
    kill(getpid(), SIGTERM);
  });
  const absl::Status status = Run("echo $$ > $D/0; kill -STOP $$");
  killer.join();
  EXPECT_THAT(Message(status), MatchesRegex("the launcher received signal 15 \\(SIGTERM\\); 1 rank was ended by "
                                            "SIGKILL; rank 0 \\(pid [0-9]+\\) was stopped"));
  EXPECT_LT(took_, absl::Seconds(3));
}

TEST_F(LaunchTest, AFailureHasAGraceOfItsOwnAndIsToldWhileOthersEnd) {
  options_.nproc_per_node = 2;
  options_.grace = absl::Minutes(1);
  options_.failure_grace = absl::Milliseconds(1500);
  std::string told;
  absl::Time told_at;
  options_.on_failure = [&](const absl::Status& status) {
    told = Message(status);
    told_at = absl::Now();
    EXPECT_EQ(FirstFailure(status)->rank, 1);
  };
  const absl::Time start = absl::Now();
  const absl::Status status = Run(R"([ $RANK = 1 ] && { while [ ! -s $D/0 ]; do sleep 0.01; done; exit 3; }
      trap '' TERM; echo $$ > $D/0; while :; do sleep 1; done)");
  EXPECT_THAT(told, MatchesRegex("rank 1 .* exited with code 3; waiting up to 1.5s for rank 0 to end"));
  EXPECT_LT(told_at - start, absl::Seconds(2));
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 1 .* exited with code 3; the other rank was ended by SIGKILL after .*"));
  EXPECT_LT(took_, absl::Seconds(5));
}

TEST_F(LaunchTest, AnErrorReportedBeforeTheEndIsTheCauseThoughItsRankIsSlowToEnd) {
  options_.nproc_per_node = 2;
  // Code 14 is Unavailable. Rank 0 reported first, and is still busy when it is told to end.
  const absl::Status status = Run(R"([ $RANK = 0 ] && { printf 'LOCKSTEP1 9 5 200\nno data' > $LOCKSTEP_ERROR_FILE
      echo $$ > $D/0; exec sleep 60; }
      while [ ! -s $D/0 ]; do sleep 0.01; done; exit 1)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* failed: no data; the other rank failed too"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ExitCode(status), 1);
}

TEST_F(LaunchTest, AConsequenceIsNotTheCauseHoweverLateThatComes) {
  options_.nproc_per_node = 2;
  const absl::Status status = Run(R"([ $RANK = 0 ] && { while [ ! -s $D/1 ]; do sleep 0.01; done; sleep 0.5; exit 4; }
      printf 'LOCKSTEP1 told 1\nLOCKSTEP1 14 5 200\nrank 0 left' > $LOCKSTEP_ERROR_FILE; echo $$ > $D/1; exit 1)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* exited with code 4; the other rank failed too"));
}

TEST_F(LaunchTest, ARankThatWasWaitedForInVainIsNotWaitedForAgain) {
  options_.nproc_per_node = 2;
  const absl::Status status = Run(R"([ $RANK = 0 ] && exec sleep 60
      printf 'LOCKSTEP1 told 1\nLOCKSTEP1 4 5 200\ntimed out' > $LOCKSTEP_ERROR_FILE; exit 1)");
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 .* exited with code 1: timed out; the other rank was ended"));
  EXPECT_LT(took_, absl::Seconds(2));
}

TEST_F(LaunchTest, ARanksNameIsSaidOnce) {
  EXPECT_THAT(Message(Run(R"(printf 'LOCKSTEP1 4 5 200\nrank 0: rank 0: no' > $LOCKSTEP_ERROR_FILE; exit 1)")),
              MatchesRegex("rank 0 \\(local rank 0, pid [0-9]+\\) exited with code 1: no"));
}

TEST_F(LaunchTest, NoRankRunsOnWhenTheLastCannotBeStarted) {
  options_.nproc_per_node = 1000;
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  rlimit few = files;
  few.rlim_cur = 32;
  setrlimit(RLIMIT_NOFILE, &few);
  const absl::Status status = Run("echo $$ > $D/$RANK; exec sleep 60");
  setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("Too many open files"));
  EXPECT_EQ(ReadFile(folder_ + "0"), "") << "no rank started";
  EXPECT_LT(took_, absl::Seconds(2));
}

TEST_F(LaunchTest, ASignalBetweenTwoStartsEndsTheLaunch) {
  options_.max_restarts = 3;
  options_.on_notice = [](const std::string&) { kill(getpid(), SIGTERM); };
  const absl::Status status = Run("echo >> $D/starts; exit 3");
  EXPECT_EQ(status.message(), "the launcher received signal 15 (SIGTERM)");
  EXPECT_EQ(ExitCode(status), 143);
  EXPECT_EQ(ReadFile(folder_ + "starts"), "\n");
}

TEST_F(LaunchTest, SigUsr1BetweenTwoStartsIsForNobody) {
  options_.max_restarts = 3;
  std::vector<std::string> notices;
  options_.on_notice = [&](const std::string& notice) {
    notices.push_back(notice);
    kill(getpid(), SIGUSR1);
  };
  EXPECT_EQ(Run("[ $TORCHELASTIC_RESTART_COUNT = 1 ]"), absl::OkStatus());
  EXPECT_THAT(notices, ElementsAre(MatchesRegex("rank 0 .* exited with code 1; restart 1 of 3")));
}

TEST_F(LaunchTest, AStatusHasTheEndOfTheRanksStderr) {
  options_.redirects.every_rank = Streams::kBoth;
  options_.log_dir = folder_;
  const absl::Status status = Run("echo first >&2; echo last >&2; exit 3");
  const std::optional<RankFailure> failure = FirstFailure(status);
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(failure->stderr_file, MatchesRegex(folder_ + "/none_[a-z0-9]{8}/attempt_0/0/stderr\\.log"));
  EXPECT_THAT(failure->stderr_lines, ElementsAre("first", "last"));
}

TEST_F(LaunchTest, LeavesNoDescriptors) {
  const int before = testing::OpenDescriptors(getpid());
  options_.nproc_per_node = 2;
  options_.max_restarts = 1;
  options_.tee.every_rank = Streams::kBoth;
  options_.log_dir = folder_;
  options_.event_log = folder_ + "events";
  EXPECT_EQ(Run("[ $TORCHELASTIC_RESTART_COUNT = 1 ]"), absl::OkStatus());
  EXPECT_EQ(testing::OpenDescriptors(getpid()), before) << "after success";
  EXPECT_EQ(ExitCode(Run("exit 3")), 3);
  EXPECT_EQ(testing::OpenDescriptors(getpid()), before) << "after a failure";
  EXPECT_EQ(ExitCode(Launch({"no-such-program"}, options_)), 127);
  EXPECT_EQ(testing::OpenDescriptors(getpid()), before) << "after a program that is not there";
}

TEST_F(LaunchTest, BadOptionsAreRefused) {
  const auto message = [](void (*change)(LaunchOptions*)) {
    LaunchOptions options;
    change(&options);
    return std::string(Launch({"true"}, options).message());
  };
  EXPECT_EQ(message([](LaunchOptions* o) { o->nproc_per_node = 0; }), "nproc_per_node must be at least 1, but is 0");
  EXPECT_EQ(message([](LaunchOptions* o) { o->nnodes = 0; }), "nnodes must be at least 1, but is 0");
  EXPECT_EQ(message([](LaunchOptions* o) { o->node_rank = 1; }),
            "node_rank must be from 0 to nnodes - 1 = 0, but is 1");
  EXPECT_EQ(message([](LaunchOptions* o) { o->master_port = 65536; }),
            "master_port must be from 0 to 65535, but is 65536");
  EXPECT_THAT(message([](LaunchOptions* o) { o->nnodes = 2; }),
              StartsWith("nnodes = 2 needs master_addr, the address of node 0"));
  EXPECT_EQ(message([](LaunchOptions* o) { o->nnodes = 2, o->master_addr = "a"; }),
            "nnodes = 2 needs master_port, a port that is free on node 0, the same on every node");
  EXPECT_EQ(Launch({}).message(), "no program to launch");
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(Launch({"true"}).message(), "launch: this process ignores SIGCHLD, so how its ranks end cannot be known");
  signal(SIGCHLD, SIG_DFL);
}

}  // namespace
}  // namespace lockstep::launch
