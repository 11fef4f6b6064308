// --max_restarts through the launch program.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ReadFile;

constexpr char kFailure[] =
    "launch: rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 3; the other rank was ended";

// $N is the number of restarts so far.
using LaunchRestartTest = testing::LaunchProgramTest;

TEST_F(LaunchRestartTest, StartsAllRanksAgain) {
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=3 --nproc_per_node=2 bash -c '
      echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT $LOCKSTEP_JOB_SECRET $$ >> $D/$RANK
      [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
      [ $RANK = 0 ] && exec sleep 60
      until [ $(cat $D/0 2> $D/none | wc -l) -gt $TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit 3')"),
            0);
  EXPECT_THAT(Err(),
              MatchesRegex(absl::StrCat(kFailure, "; restart 1 of 3\n", kFailure, "; restart 2 of 3 in 100ms\n")));
  const std::vector<std::string> lines = absl::StrSplit(ReadFile(folder_ + "0"), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3);
  std::set<std::string> ports, secrets;
  for (int i = 0; i < 3; ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ');
    ASSERT_EQ(words.size(), 5);
    EXPECT_EQ(words[0], absl::StrCat(i));
    EXPECT_EQ(words[1], "3");
    ports.insert(words[2]);
    secrets.insert(words[3]);
  }
  EXPECT_GE(ports.size(), 2) << "a port differs from the one before";
  EXPECT_EQ(secrets.size(), 3);
}

TEST_F(LaunchRestartTest, KeepsAPortThatWasGiven) {
  EXPECT_EQ(RunScript(R"(PET_MAX_RESTARTS=1 $LAUNCH --master-port=29511 sh -c '
      echo $MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]')"),
            0);
  EXPECT_EQ(Out(), "29511\n29511\n");
}

TEST_F(LaunchRestartTest, EndsAfterTheLastRestart) {
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=2 bash -c 'exit $((5 + TORCHELASTIC_RESTART_COUNT))')"), 7);
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 0 .* exited with code 5; restart 1 of 2\n"
                                  "launch: rank 0 .* exited with code 6; restart 2 of 2 in 100ms\n"
                                  "launch: rank 0 .* exited with code 7; after 2 restarts; each of the last 3 attempts "
                                  "failed within [0-9.]+m?s\n"));
}

TEST_F(LaunchRestartTest, DoesNotRepeatAFailedStart) {
  EXPECT_EQ(Run({"--max-restarts=3", "no-such-program"}), 127);
  EXPECT_EQ(Err(), "launch: program \"no-such-program\" not found in PATH; a failed start-up is not retried\n");
  EXPECT_EQ(Run({"--max-restarts=3", "/etc/passwd"}), 126);
  EXPECT_EQ(Err(), "launch: program \"/etc/passwd\" is not an executable file; a failed start-up is not retried\n");
}

TEST_F(LaunchRestartTest, RepeatsWhatARankCouldNotExecuteItself) {
  EXPECT_EQ(Run({"--max-restarts=1", "sh", "-c", "exec no-such-program 2> /dev/null"}), 1);
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 0 .* exited with code 127; restart 1 of 1\n"
                                  "launch: rank 0 .* exited with code 127; after 1 restart\n"));
}

TEST_F(LaunchRestartTest, ASignalWhileRanksEndLeavesThemTheirGrace) {
  const pid_t pid =
      Start({"--max-restarts=3", "--nproc_per_node=2", "--grace=10", "bash", "-c",
             R"(exec 2> /dev/null; [ $RANK = 1 ] && { until [ -s $D/ready ]; do sleep 0.01; done; exit 5; }
                              trap 'echo 1 > $D/ending; sleep 0.3; echo saved > $D/saved; exit 0' TERM
                              echo 1 > $D/ready; while :; do sleep 0.01; done)"});
  AwaitPid(folder_ + "ending");
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 5);
  EXPECT_EQ(ReadFile(folder_ + "saved"), "saved\n");
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 1 .* exited with code 5; the other rank was ended; then the launcher "
                                  "received signal 15 \\(SIGTERM\\)\n"));
}

TEST_F(LaunchRestartTest, EndsWithASignal) {
  const pid_t pid = Start({"--max-restarts=3", "bash", "-c",
                           "exec 2> /dev/null; trap 'exit 3' TERM; echo $$ > $D/0; while :; do sleep 0.01; done"});
  AwaitPid(folder_ + "0");
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_EQ(Err(), "launch: the launcher received signal 15 (SIGTERM); 1 rank was ended\n");
}

TEST_F(LaunchRestartTest, PausesInACrashLoopUntilASignalComes) {
  const absl::Time start = absl::Now();
  const pid_t pid = Start({"--max-restarts=1000", "bash", "-c", "echo $TORCHELASTIC_RESTART_COUNT >> $D/0; exit 1"});
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err(), "restart 8 of 1000 in 6.4s"); }, absl::Seconds(60)));
  EXPECT_GE(absl::Now() - start, absl::Seconds(6.3)) << "the pauses before were 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 s";
  kill(pid, SIGUSR1);  // does not end the pause, nor the launch
  const absl::Time signalled = absl::Now();
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 143);
  EXPECT_LT(absl::Now() - signalled, absl::Seconds(5)) << "the pause did not end";
  EXPECT_TRUE(absl::EndsWith(Err(), "\nlaunch: the launcher received signal 15 (SIGTERM)\n")) << Err();
  EXPECT_EQ(ReadFile(folder_ + "0"), "0\n1\n2\n3\n4\n5\n6\n7\n") << "no rank starts after the signal";
}

TEST_F(LaunchRestartTest, GivesEachAttemptItsOwnFiles) {
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=1 --redirects=3 --log-dir=$D/logs sh -c '
      echo attempt $TORCHELASTIC_RESTART_COUNT >&2; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'; rc=$?
      cd $D/logs/none_* && grep . */*/*; exit $rc)"),
            0);
  EXPECT_EQ(Out(), "attempt_0/0/stderr.log:attempt 0\nattempt_1/0/stderr.log:attempt 1\n");
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 0 .* exited with code 1; restart 1 of 1\n"));
}

TEST_F(LaunchRestartTest, IsInTheEventLog) {
  EXPECT_EQ(RunScript(R"($LAUNCH --nproc_per_node=2 --max-restarts=1 --event-log=$D/events bash -c '
      [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
      [ $RANK = 0 ] && { touch $D/ready; exec sleep 60; }
      until [ -e $D/ready ]; do sleep 0.01; done; exit 3')"),
            0);
  std::vector<std::string> events;
  std::string cause;
  for (const absl::string_view line : absl::StrSplit(ReadFile(folder_ + "events"), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, '"');
    events.push_back(parts[9]);  // the value of "event", after those of "time" and "monotonic_ns"
    EXPECT_EQ(line.back(), '}');
    if (events.back() == "first_cause") cause = std::string(line);
  }
  EXPECT_EQ(absl::StrJoin(events, " "),
            "attempt_started rank_started rank_started rank_ended rank_ended first_cause restart "
            "attempt_started rank_started rank_started rank_ended rank_ended end");
  EXPECT_THAT(cause, HasSubstr("\"rank\":1,\"local_rank\":1,"));
  EXPECT_THAT(cause, HasSubstr("\"exit_code\":3,"));
}

TEST_F(LaunchRestartTest, SurvivesAFullDiskBelowTheEventLog) {
  EXPECT_EQ(Run({"--event-log=/dev/full", "--nproc_per_node=2", "true"}), 0);
  EXPECT_EQ(Err(), "launch: event log /dev/full lacks events from here on: No space left on device\n");
  EXPECT_EQ(Run({"--event-log=/nowhere/x", "true"}), 1);
  EXPECT_EQ(Err(), "launch: event log /nowhere/x cannot be opened: No such file or directory\n");
}

TEST_F(LaunchRestartTest, ForgetsTheReportsOfAnAttempt) {
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=1 bash -c '
      [ $TORCHELASTIC_RESTART_COUNT = 1 ] || printf "LOCKSTEP1 9 1 200\nno data" > $LOCKSTEP_ERROR_FILE; exit 1')"),
            1);
  EXPECT_THAT(Err(), MatchesRegex("launch: rank 0 .* exited with code 1: no data; restart 1 of 1\n"
                                  "launch: rank 0 .* exited with code 1; after 1 restart\n"));
}

TEST_F(LaunchRestartTest, CountsTheRestartsOfTheWindow) {
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=1 --restart-window=0.3 bash -c '
      [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && sleep 0.4; exit 1')"),
            0);
  EXPECT_EQ(RunScript(R"($LAUNCH --max-restarts=1 --restart-window=60 bash -c '
      [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit; exit 1')"),
            1);
}

// A launcher alone, and one that serves others. They pause at the same time.
TEST_F(LaunchRestartTest, KeepsNoDescriptors) {
  const std::string script = R"(N=$TORCHELASTIC_RESTART_COUNT; J=$D/$TORCHELASTIC_RUN_ID
      [ $RANK = 1 ] && { touch $J.started.$N; until [ -e $J.end ]; do sleep 0.01; done; exit 0; }
      until [ -e $J.started.$N ]; do sleep 0.01; done
      count() { ls /proc/$PPID/fd | wc -l; }
      until n=$(count); sleep 0.1; [ $n = $(count) ]; do :; done; echo $n >> $J.descriptors
      [ $N = 5 ] && touch $J.end)";
  const auto start = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"--max-restarts=5", "--nproc_per_node=2", "--tee=3", "--log-dir=" + folder_ + "logs",
                             "--event-log=" + folder_ + "events", "bash", "-c", script});
    return Start(args);
  };
  const pid_t alone = start({"--rdzv-id=alone"});
  const pid_t serves =
      start({"--rdzv-id=serves", "--rdzv-backend=tcp", absl::StrCat("--rdzv-endpoint=127.0.0.1:", *FreePort())});
  EXPECT_EQ(Wait(alone), 0) << Err();
  EXPECT_EQ(Wait(serves), 0) << Err();
  for (const char* job : {"alone", "serves"}) {
    const std::vector<std::string> counts =
        absl::StrSplit(ReadFile(folder_ + job + ".descriptors"), '\n', absl::SkipEmpty());
    ASSERT_EQ(counts.size(), 6) << job;
    EXPECT_EQ(counts, std::vector<std::string>(6, counts[0])) << job;
  }
}

TEST_F(LaunchRestartTest, TakesAnotherPortIfAnotherProcessHasTakenIt) {
  const pid_t pid = Start({"--max-restarts=1", "bash", "-c", R"(echo $MASTER_PORT > $D/port.$TORCHELASTIC_RESTART_COUNT
      until [ -e $D/end.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit $((1 - TORCHELASTIC_RESTART_COUNT)))"});
  std::vector<UniqueFd> takers;
  for (const char* attempt : {"0", "1"}) {
    takers.push_back(testing::ListenAt(AwaitPid(absl::StrCat(folder_, "port.", attempt))));
    EXPECT_TRUE(takers.back().valid()) << attempt;
    ASSERT_EQ(system(absl::StrCat("touch ", folder_, "end.", attempt).c_str()), 0);
  }
  EXPECT_EQ(Wait(pid), 0) << Err();
}

}  // namespace
}  // namespace lockstep::launch
