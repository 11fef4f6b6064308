// Ranks that stay when another one ends, under the launch program.

#include "lockstep/launch/link/agent_link.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/link/testing/places.h"
#include "lockstep/launch/testing/launch_program.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::Place;
using testing::ReadFile;

class AgentLinkTest : public testing::LaunchProgramTest {
 protected:
  // Starts the counting ranks.
  pid_t StartRanks(int ranks, std::vector<std::string> flags = {}) {
    flags.push_back(absl::StrCat("--nproc_per_node=", ranks));
    flags.push_back(getenv("COUNTING_RANK"));
    return Start(flags);
  }

  std::vector<Place> Places() const { return testing::Places(folder_ + "generations"); }

  std::vector<Place> Await(int world_size, int after_generation = 0) const {
    return testing::AwaitPlaces(folder_ + "generations", world_size, after_generation);
  }

  void TearDown() override {
    for (const char* name : {"DIE_EARLY", "OPEN_AFTER_MS", "SLEEPS_AT"}) unsetenv(name);
  }

  // Ends the ranks of a job that goes on for ever.
  void Stop(pid_t launcher) {
    kill(launcher, SIGTERM);
    EXPECT_EQ(Wait(launcher), 128 + SIGTERM) << Err();
  }
};

TEST_F(AgentLinkTest, OtherRanksOutliveOneAndItComesBack) {
  const pid_t launcher = StartRanks(3);
  const std::vector<Place> first = Await(3);
  kill(first[1].pid, SIGKILL);
  const std::vector<Place> last = Await(3, 2);
  EXPECT_EQ(last[0].pid, first[0].pid);
  EXPECT_EQ(last[1].pid, first[2].pid);
  EXPECT_EQ(last[2].local_rank, 1);
  EXPECT_NE(last[2].pid, first[1].pid);
  EXPECT_EQ(last[2].step, last[0].step);  // which it got from the others
  EXPECT_GE(last[0].step, first[0].step);
  Stop(launcher);
  EXPECT_THAT(Err(), HasSubstr(absl::StrCat("launch: rank 1 (local rank 1, pid ", first[1].pid,
                                            ") was killed by signal 9 (SIGKILL); generation 2 has 2 ranks\n")));
  EXPECT_THAT(Err(), HasSubstr("launch: process 1 is ready; generation 3 has 3 ranks\n"));
}

// With --stall_timeout it is ended after the line, and the others go on with another process in its place.
TEST_F(AgentLinkTest, ARankThatSleepsIsNamedEndedAndReplaced) {
  setenv("SLEEPS_AT", "50", 1);
  const pid_t launcher = StartRanks(2, {"--stall_timeout=31"});
  const std::vector<Place> first = Await(2);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(Err(), "and is killed"); }, absl::Seconds(60))) << Err();
  const std::vector<Place> last = Await(2, 2);
  EXPECT_EQ(last[0].pid, first[0].pid);
  EXPECT_NE(last[1].pid, first[1].pid);
  EXPECT_GE(last[0].step, 50);
  Stop(launcher);
  EXPECT_THAT(Err(),
              MatchesRegex(absl::StrCat(
                  "launch: no step for 3[0-9]s: barrier #7 has lasted 30s: rank 1 has not begun it\n"
                  "launch: rank 1 \\(local rank 1, pid ",
                  first[1].pid, "\\) has kept the others waiting for --stall_timeout, 31s, and is killed\n(.*\n)*")));
}

// Returns a program that runs `command` in the first process of local rank 1 before that becomes a counting rank, while
// the others wait for it.
std::vector<std::string> SlowStart(const std::string& command) {
  const std::string script =
      absl::StrCat("echo $$ > $D/pid$LOCAL_RANK; if [ $LOCAL_RANK = 1 ] && mkdir $D/slow 2> /dev/null; then ", command,
                   "; fi; exec $COUNTING_RANK");
  return {"--no-python", "sh", "-c", script};
}

TEST_F(AgentLinkTest, ARankThatIsKilledBeforeAllHaveJoinedComesBack) {
  std::vector<std::string> flags = {"--nproc_per_node=3"};
  for (const std::string& arg : SlowStart("while ! [ -e $D/go ]; do sleep 0.01; done; kill -9 $$"))
    flags.push_back(arg);
  const pid_t launcher = Start(flags);
  absl::SleepFor(absl::Milliseconds(500));  // the others have joined
  int first = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(folder_ + "pid0"), &first));
  kill(first, SIGKILL);
  std::ofstream(folder_ + "go") << "\n";
  const std::vector<Place> places = Await(3);
  EXPECT_EQ(places[0].generation, 1);
  EXPECT_NE(places[0].pid, first);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(places[rank].local_rank, rank);
  Stop(launcher);
  for (const char* local_rank : {"0", "1"}) {
    EXPECT_THAT(Err(), ContainsRegex(absl::StrCat(
                           "launch: rank ", local_rank, " \\(local rank ", local_rank,
                           ", pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\) before all ranks had joined; "
                           "another process takes its place\n")));
  }
}

// As while they load their libraries.
TEST_F(AgentLinkTest, RanksThatAreKilledBeforeAnyHasOpenedComeBack) {
  setenv("DIE_EARLY", "2", 1);
  setenv("OPEN_AFTER_MS", "700", 1);
  const pid_t launcher = StartRanks(3);
  EXPECT_EQ(Await(3)[0].generation, 1);
  Stop(launcher);
  EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL) before all ranks had joined; another process takes"));
}

TEST_F(AgentLinkTest, IfNoOtherRankOpensTheFirstDeathEndsTheJob) {
  setenv("OPEN_AFTER_MS", "60000", 1);
  setenv("DIE_EARLY", "1", 1);
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Wait(StartRanks(2)), 128 + SIGKILL);
  EXPECT_GE(absl::Now() - begin, absl::Seconds(5));
  EXPECT_THAT(Err(), ContainsRegex("launch: rank [01] \\(local rank [01], pid [0-9]+\\) was killed by signal 9 "
                                   "\\(SIGKILL\\); the other rank was ended\n$"));
  setenv("DIE_EARLY", "3", 1);  // all of them
  EXPECT_EQ(Wait(StartRanks(2)), 128 + SIGKILL);
  EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL)"));
}

TEST_F(AgentLinkTest, ARankThatExitsBeforeAllHaveJoinedEndsTheJob) {
  std::vector<std::string> flags = {"--nproc_per_node=3"};
  for (const std::string& arg : SlowStart("sleep 0.5; exit 7")) flags.push_back(arg);
  EXPECT_EQ(Run(flags), 7);
  EXPECT_THAT(Err(),
              ContainsRegex("launch: rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 7; the other 2 ranks "
                            "were ended\n$"));
}

TEST_F(AgentLinkTest, ARankThatIsKilledAtEachStartEndsTheJob) {
  EXPECT_EQ(Run({"--nproc_per_node=2", "--no-python", "sh", "-c",
                 "[ $LOCAL_RANK = 0 ] && exec $COUNTING_RANK; sleep 0.3; kill -9 $$"}),
            1);
  EXPECT_THAT(Err(), HasSubstr("is not started again, since five of its processes in succession have not joined\n"));
  EXPECT_THAT(Err(),
              ContainsRegex("launch: 1 of at least 2 ranks are there, and no other one comes; at its start, rank 1 "
                            "\\(local rank 1, pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)\n"));
}

TEST_F(AgentLinkTest, ASpareTakesThePlaceOfARankAtOnce) {
  const pid_t launcher = StartRanks(2, {"--spares=1"});
  const std::vector<Place> first = Await(2);
  absl::SleepFor(absl::Milliseconds(500));  // the spare waits too
  kill(first[0].pid, SIGKILL);
  const std::vector<Place> second = Await(2, 1);
  EXPECT_EQ(second[0].generation, 2);
  EXPECT_EQ(second[0].pid, first[1].pid);
  EXPECT_EQ(second[0].local_rank, first[1].local_rank);
  EXPECT_EQ(second[1].local_rank, first[0].local_rank);
  Stop(launcher);
}

TEST_F(AgentLinkTest, AProgramThatDoesNotAskForAGenerationGetsNoSpare) {
  const std::string script = "echo $RANK of $WORLD_SIZE";
  EXPECT_EQ(Run({"--nproc_per_node=2", "--spares=1", "--no-python", "bash", "-c", script}), 0);
  EXPECT_THAT(Out(), AnyOf("0 of 2\n1 of 2\n", "1 of 2\n0 of 2\n"));
  EXPECT_EQ(Err(), "launch: no rank has asked for a generation (launch/link), so no spare is started\n");
}

TEST_F(AgentLinkTest, SparesNeedALauncherThatHearsOfTheOthers) {
  EXPECT_EQ(Run({"--spares=1", "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", "--master_port=1", "true"}),
            2);
  EXPECT_THAT(Err(), HasSubstr("launch: --spares with nnodes 2 needs --rdzv_backend=tcp or etcd-v3"));
  EXPECT_EQ(Run({"--spares=-1", "true"}), 2);
  EXPECT_EQ(Run({"--spares=1", "--virtual_local_rank", "true"}), 2);
}

TEST_F(AgentLinkTest, StatusShowsTheStepsAndTheGeneration) {
  const pid_t launcher = StartRanks(2);
  kill(Await(2)[0].pid, SIGKILL);
  const Place last = Await(2, 2)[1];
  EXPECT_TRUE(Eventually(
      [&] {
        if (RunScript(absl::StrCat("$LAUNCH status ", launcher, " > $D/status")) != 0) return false;
        const std::string table = ReadFile(folder_ + "status");
        return absl::StrContains(table, "generation 3, 1 restart\n") &&
               ::testing::Matches(ContainsRegex(absl::StrCat("1 +0 +", last.pid, " +running +[0-9]+s +[0-9]+ ")))(
                   table);
      },
      absl::Seconds(20)))
      << Err() << ReadFile(folder_ + "status");
  Stop(launcher);
}

TEST_F(AgentLinkTest, RanksThatHaveFinishedMayAskForAnotherStart) {
  setenv("STEPS", "20", 1);
  setenv("EXIT_CODE", "75", 1);
  EXPECT_EQ(Wait(StartRanks(3)), 75);
  unsetenv("STEPS");
  unsetenv("EXIT_CODE");
  EXPECT_THAT(Err(), ContainsRegex("launch: rank 0 \\(local rank 0, pid [0-9]+\\) exited with code 75; "
                                   "the job can be started again\n"));
  EXPECT_THAT(Err(), Not(HasSubstr("generation 2")));
}

TEST_F(AgentLinkTest, TheyMayDoSoAlsoIfTheLastOneIsKilled) {
  setenv("STEPS", "20", 1);
  setenv("EXIT_CODE", "75", 1);
  setenv("AFTER", absl::StrCat(SIGKILL).c_str(), 1);
  setenv("AFTER_RANK", "1", 1);
  EXPECT_EQ(Wait(StartRanks(3)), 75) << Err();
  for (const char* name : {"STEPS", "EXIT_CODE", "AFTER", "AFTER_RANK"}) unsetenv(name);
  EXPECT_THAT(Err(), HasSubstr("was killed by signal 9 (SIGKILL), after all ranks had done their work\n"));
}

// While its ranks are being ended, the launcher is told to end, too.
TEST_F(AgentLinkTest, AJobThatARankHasEndedFailsAlsoIfASignalComesThen) {
  setenv("STEPS", "20", 1);
  setenv("END_JOB", "sample 7 is broken", 1);
  setenv("IGNORE_TERM", "1", 1);
  const pid_t launcher = StartRanks(2);
  const std::vector<Place> first = Await(2);
  EXPECT_TRUE(Eventually([&] { return Gone(first[0].pid); }));
  kill(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher), 1) << Err();
  for (const char* name : {"STEPS", "END_JOB", "IGNORE_TERM"}) unsetenv(name);
  EXPECT_THAT(Err(), HasSubstr("launch: sample 7 is broken\n"));
}

TEST_F(AgentLinkTest, ARankMayEndTheJob) {
  setenv("STEPS", "20", 1);
  setenv("END_JOB", "sample 7 is broken", 1);
  EXPECT_EQ(Wait(StartRanks(3)), 1);
  unsetenv("STEPS");
  unsetenv("END_JOB");
  EXPECT_THAT(Err(), HasSubstr("launch: sample 7 is broken\n"));
  EXPECT_THAT(Err(), Not(HasSubstr("generation 2")));
}

TEST_F(AgentLinkTest, AlsoRankZeroMayEnd) {
  const pid_t launcher = StartRanks(2);
  const std::vector<Place> first = Await(2);
  kill(first[0].pid, SIGSEGV);
  const std::vector<Place> last = Await(2, 2);
  EXPECT_EQ(last[0].pid, first[1].pid);
  EXPECT_EQ(last[1].local_rank, 0);
  Stop(launcher);
}

TEST_F(AgentLinkTest, EndsWithSuccessWhenAllHaveFinished) {
  setenv("STEPS", "200", 1);
  const pid_t launcher = StartRanks(3);
  kill(Await(3)[2].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 0) << Err();
  unsetenv("STEPS");
}

TEST_F(AgentLinkTest, ARankThatHasBeenStoppedIsKilled) {
  setenv("LEAVE_TIMEOUT", "1", 1);
  const pid_t launcher = StartRanks(3);
  const std::vector<Place> first = Await(3);
  kill(first[1].pid, SIGSTOP);
  kill(first[2].pid, SIGKILL);
  const std::vector<Place> last = Await(3, 2);
  EXPECT_EQ(last[0].pid, first[0].pid);
  EXPECT_TRUE(Gone(first[1].pid));
  Stop(launcher);
  unsetenv("LEAVE_TIMEOUT");
}

TEST_F(AgentLinkTest, ARankThatEndsBeforeItsWorkHasFailed) {
  const pid_t launcher = StartRanks(3);
  const std::vector<Place> first = Await(3);
  kill(first[1].pid, SIGUSR1);
  const std::vector<Place> last = Await(3, 2);
  EXPECT_EQ(last[0].pid, first[0].pid);
  EXPECT_NE(last[2].pid, first[1].pid);
  Stop(launcher);
  EXPECT_THAT(Err(),
              HasSubstr(absl::StrCat("launch: rank 1 (local rank 1, pid ", first[1].pid,
                                     ") exited with code 0: it ended before its work did; generation 2 has 2 ")));
}

TEST_F(AgentLinkTest, TheBudgetOfRestartsEndsTheJob) {
  const pid_t launcher = StartRanks(2, {"--max_restarts=1"});
  kill(Await(2)[1].pid, SIGKILL);
  kill(Await(2, 2)[1].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 128 + SIGKILL);
  EXPECT_THAT(Err(), MatchesRegex("(.|\n)*launch: rank 1 .* was killed by signal 9 \\(SIGKILL\\); the other rank was "
                                  "ended; after 1 restart\n"));
}

TEST_F(AgentLinkTest, GenerationsWithoutAStepEndTheJob) {
  setenv("PAUSE_US", "100000000", 1);
  const pid_t launcher = StartRanks(2);
  std::vector<Place> places = Await(2);
  for (int i = 0; i < 10; ++i) {
    const int generation = places[0].generation;
    for (const Place& place : places) kill(place.pid, SIGKILL);
    if (i < 9) places = Await(2, generation);
  }
  EXPECT_EQ(Wait(launcher), 128 + SIGKILL);
  EXPECT_THAT(Err(), HasSubstr("; the last 10 generations ended before they completed a step\n"));
  unsetenv("PAUSE_US");
}

TEST_F(AgentLinkTest, TheOthersGoOnIfAProcessCannotBeStarted) {
  const std::string program = folder_ + "program";
  ASSERT_EQ(RunScript("cp $COUNTING_RANK $D/program"), 0);
  const pid_t launcher = Start({"--nproc_per_node=2", program});
  const std::vector<Place> first = Await(2);
  ASSERT_EQ(remove(program.c_str()), 0);
  kill(first[1].pid, SIGKILL);
  EXPECT_EQ(Await(1, 1)[0].pid, first[0].pid);
  EXPECT_TRUE(Eventually(
      [&] {
        return absl::StrContains(
            Err(), "; local rank 1 is not started again, since five of its processes in succession have not joined\n");
      },
      absl::Seconds(30)));
  EXPECT_THAT(Err(), HasSubstr("cannot be started: No such file or directory"));
  Stop(launcher);
}

TEST_F(AgentLinkTest, WaitsForTheLeastNumberOfRanks) {
  setenv("MIN_RANKS", "3", 1);
  const pid_t launcher = StartRanks(3);
  kill(Await(3)[0].pid, SIGKILL);
  Await(3, 1);
  Stop(launcher);
  EXPECT_THAT(Err(), HasSubstr("(SIGKILL); generation 2 has 3 ranks\n"));
  unsetenv("MIN_RANKS");
}

TEST_F(AgentLinkTest, MoreRanksThanThereAreIsAnError) {
  setenv("MIN_RANKS", "3", 1);
  EXPECT_EQ(Wait(StartRanks(2)), 1);
  EXPECT_THAT(Err(), HasSubstr("2 of at least 3 ranks are there, and no other one comes"));
  unsetenv("MIN_RANKS");
}

// Random deaths, one after another and at once, with whatever rank.
TEST_F(AgentLinkTest, SurvivesManyDeaths) {
  constexpr int kRanks = 4;
  const pid_t launcher = StartRanks(kRanks);
  std::mt19937 random(7);
  int step = 0;
  std::vector<Place> places = Await(kRanks);
  for (int i = 0; i < 40; ++i) {
    const int deaths = 1 + static_cast<int>(random() % (kRanks - 1));
    std::shuffle(places.begin(), places.end(), random);
    for (int j = 0; j < deaths; ++j) kill(places[j].pid, SIGKILL);
    places = Await(kRanks, places[0].generation);
    EXPECT_GE(places[0].step, step) << "a step was lost";
    step = places[0].step;
    absl::SleepFor(absl::Milliseconds(20));  // some steps
  }
  Stop(launcher);
  for (const Place& place : Places()) EXPECT_TRUE(Gone(place.pid));
}

// Programs that do not ask for generations.
TEST_F(AgentLinkTest, OtherProgramsEndTogether) {
  EXPECT_EQ(Run({"--nproc_per_node=2", "bash", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 100"}), 7);
  EXPECT_THAT(Err(), Not(HasSubstr("generation")));
}

TEST(AgentLink, NeedsALauncher) {
  unsetenv("LOCKSTEP_AGENT_LINK_FD");
  EXPECT_EQ(AgentLink::Open().status().code(), absl::StatusCode::kFailedPrecondition);
  setenv("LOCKSTEP_AGENT_LINK_FD", "1000000", 1);
  EXPECT_EQ(AgentLink::Open().status().code(), absl::StatusCode::kFailedPrecondition);
  unsetenv("LOCKSTEP_AGENT_LINK_FD");
}

}  // namespace
}  // namespace lockstep::launch
