// Trainings whose ranks die end with the bits of one that nobody has disturbed.

#include "lockstep/elastic/world.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/testing/small_training_program.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::ReadFile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using WorldTest = testing::SmallTrainingTest;
using testing::Place;

TEST_F(WorldTest, EndsWithTheSameBitsAfterAnyRankHasDied) {
  const std::string quiet = DigestOfQuietRun(3, 300);
  ASSERT_THAT(quiet, Not(::testing::IsEmpty()));
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    setenv("PAUSE_US", "5000", 1);
    const pid_t launcher = StartTraining(3, 300);
    unsetenv("PAUSE_US");
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    absl::SleepFor(absl::Milliseconds(200));
    for (const Place& place : Last()) {
      if (place.rank == rank) kill(place.pid, SIGKILL);
    }
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), quiet);
    EXPECT_THAT(Err(), HasSubstr("generation 2 has 2 ranks\n"));
    EXPECT_THAT(Err(), HasSubstr("generation 3 has 3 ranks\n"));
    remove((folder_ + "digest").c_str());
    remove((folder_ + "generations").c_str());
  }
}

TEST_F(WorldTest, EndsWithTheSameBitsIfARankDiesBeforeAllHaveJoined) {
  const std::string quiet = DigestOfQuietRun(3, 30);
  setenv("FAULT", "dies_early", 1);
  for (const char* rank : {"0", "2"}) {
    setenv("FAULT_RANK", rank, 1);
    EXPECT_EQ(Wait(StartTraining(3, 30)), 0) << Err();
    EXPECT_THAT(Err(),
                HasSubstr("was killed by signal 9 (SIGKILL) before all ranks had joined; another process takes"));
    EXPECT_THAT(Err(), Not(HasSubstr("generation 2")));
    EXPECT_EQ(ReadFile(folder_ + "digest"), quiet);
    remove((folder_ + "digest").c_str());
    rmdir((folder_ + "died").c_str());
  }
}

TEST_F(WorldTest, EndsWithTheSameBitsAfterManyDeaths) {
  const std::string quiet = DigestOfQuietRun(1, 400);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(4, 400);
  unsetenv("PAUSE_US");
  std::mt19937 random(11);
  int deaths = 0;
  for (int generation = 1; deaths < 12 && AwaitGeneration(generation);) {
    std::vector<Place> places = Last();
    if (places.empty()) continue;
    generation = places[0].generation + 1;
    if (places[0].commits > 330) break;
    // Generations that all end before a step would end the job.
    if (generation % 4 == 0) absl::SleepFor(absl::Seconds(1));
    std::shuffle(places.begin(), places.end(), random);
    absl::SleepFor(absl::Milliseconds(random() % 100));
    // Somebody must be left who has the state.
    const size_t most = std::min<size_t>(places.size() - 1, 2);
    for (size_t i = 0; i < most; ++i, ++deaths) kill(places[i].pid, SIGKILL);
  }
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_GE(deaths, 6);
}

TEST_F(WorldTest, AJobWhoseWorkIsDoneIsNotTrainedAgain) {
  const std::string quiet = DigestOfQuietRun(3, 30);
  struct Case {
    const char* fault;
    int code;
    const char* line;  // its end
  };
  for (const Case& c :
       {Case{"killed_after_run", 0, ") was killed by signal 9 (SIGKILL), after all ranks had done their work\n"},
        Case{"crashes_after_run", 139, ") was killed by signal 11 (SIGSEGV), after all ranks had done their work\n"},
        Case{"exits_after_run", 7, ") exited with code 7, after all ranks had done their work\n"},
        Case{"slow_exit", 0, ""}}) {
    for (const char* rank : {"0", "1"}) {
      SCOPED_TRACE(absl::StrCat(c.fault, " of rank ", rank));
      setenv("FAULT", c.fault, 1);
      setenv("FAULT_RANK", rank, 1);
      EXPECT_EQ(Wait(StartTraining(3, 30)), c.code) << Err();
      EXPECT_EQ(ReadFile(folder_ + "digest"), quiet);
      EXPECT_THAT(ReadFile(folder_ + "generations"), Not(HasSubstr("\n2 ")));
      EXPECT_THAT(Err(), HasSubstr(c.line));
      const std::vector<std::string> parts = absl::StrSplit(Err(), "launch: ");
      EXPECT_EQ(parts.size() - 1, *c.line == '\0' ? 0 : 1) << Err();
      remove((folder_ + "digest").c_str());
      remove((folder_ + "generations").c_str());
    }
  }
}

TEST_F(WorldTest, MayRunAgainAfterItsWork) {
  const std::string quiet = DigestOfQuietRun(3, 40);
  setenv("FAULT", "runs_twice", 1);
  setenv("FAULT_RANK", "1", 1);
  setenv("LEAVE_MS", "1000", 1);  // does not concern it, as no step is under way
  EXPECT_EQ(Wait(StartTraining(3, 30)), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(Err(), HasSubstr("generation 2 has 3 ranks\n"));
  EXPECT_THAT(Err(), Not(HasSubstr("killed")));
}

// Launchers that do not hear of each other.
class TwoNodesTest : public WorldTest {
 protected:
  // Expects that both launchers end with `code`.
  void Train(int ranks_per_node, int code) {
    const std::string port = absl::StrCat("--master_port=", *launch::FreePort());
    std::vector<pid_t> launchers;
    for (const char* node : {"--node_rank=0", "--node_rank=1"}) {
      launchers.push_back(StartTraining(ranks_per_node, 30, {"--nnodes=2", node, "--master_addr=127.0.0.1", port}));
    }
    for (const pid_t launcher : launchers) EXPECT_EQ(Wait(launcher), code) << Err();
  }
};

TEST_F(TwoNodesTest, ARankThatIsKilledAfterItsWorkEndsNoOtherOnesOfItsNode) {
  setenv("FAULT", "killed_after_run", 1);
  setenv("FAULT_RANK", "3", 1);
  Train(2, 0);
  EXPECT_THAT(ReadFile(folder_ + "digest"), Not(::testing::IsEmpty()));
}

// Nobody forms another generation there, so no rank waits for one.
TEST_F(TwoNodesTest, AnErrorEndsAllRanks) {
  setenv("FAULT", "error", 1);
  setenv("FAULT_AT", "5", 1);
  Train(1, 1);
  EXPECT_THAT(Err(), HasSubstr("sample 40 is broken"));
}

TEST_F(TwoNodesTest, RunOnce) {
  setenv("FAULT", "runs_twice", 1);
  setenv("FAULT_RANK", "1", 1);
  const absl::Time start = absl::Now();
  Train(1, 1);
  EXPECT_THAT(Err(), HasSubstr("World::Run: the ranks have left their group, and form no other one, since the "
                               "launchers meet by a static rendezvous"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(60));  // the timeout is 120 s
}

// Over TCP, too.
TEST_F(WorldTest, HealsOverGloo) {
  setenv("BACKEND", "gloo", 1);
  const std::string quiet = DigestOfQuietRun(2, 200);
  setenv("PAUSE_US", "5000", 1);
  const pid_t launcher = StartTraining(3, 200);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(200));
  kill(Last()[0].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
}

// Nobody has completed a step, so rank 0's state counts.
TEST_F(WorldTest, StartsWithTheStateOfRank0) {
  setenv("FAULT", "seeds", 1);
  setenv("CHECK_EVERY", "1", 1);
  EXPECT_EQ(Wait(StartTraining(3, 10)), 0) << Err();
  EXPECT_THAT(Err(), Not(HasSubstr("differs"))) << Err();
}

TEST_F(WorldTest, RepeatsAStepThatIsNotFinite) {
  const std::string quiet = DigestOfQuietRun(3, 60);
  setenv("FAULT", "nan_once", 1);
  setenv("FAULT_AT", "30", 1);
  setenv("REFUSE_NON_FINITE", "1", 1);
  EXPECT_EQ(Wait(StartTraining(3, 60)), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(Err(), HasSubstr("error of rank 0 in step 30: the gradient of net: first.weight is not finite"));
}

TEST_F(WorldTest, EndsTheJobIfAStepIsNeverFinite) {
  setenv("FAULT", "nan", 1);
  setenv("FAULT_AT", "30", 1);
  setenv("REFUSE_NON_FINITE", "1", 1);
  EXPECT_EQ(Wait(StartTraining(3, 60)), 1) << Err();
  EXPECT_THAT(Err(),
              HasSubstr("rank 0 failed in step 30: the gradient of net: first.weight is not finite; the job ends, "
                        "since this cause came 3 times within 10 steps: rank 0 in step 30, rank 0 in step 30"));
}

// The average is not finite on any rank. The rank that has made it is found when the step is repeated.
TEST_F(WorldTest, BlamesTheRankWhoseGradientIsNotFinite) {
  setenv("FAULT", "nan_loss", 1);
  setenv("FAULT_AT", "30", 1);
  setenv("REFUSE_NON_FINITE", "1", 1);
  EXPECT_EQ(Wait(StartTraining(3, 60)), 1) << Err();
  EXPECT_THAT(Err(),
              HasSubstr("rank 1 failed in step 30: the gradient of net: first.weight is not finite; the job ends, "
                        "since this cause came 3 times within 10 steps: all ranks in step 30, rank 1 in step 30, "
                        "rank 1 in step 30"));
}

TEST_F(WorldTest, EndsTheJobIfOneCauseComesAgainAndAgain) {
  setenv("FAULT", "error", 1);
  setenv("FAULT_AT", "30", 1);
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(Wait(StartTraining(ranks, 60)), 1) << Err();
    EXPECT_THAT(Err(),
                HasSubstr("rank 0 failed in step 30: sample 240 is broken; the job ends, since this cause came 3 "
                          "times within 10 steps: rank 0 in step 30, rank 0 in step 30, rank 0 in step 30"));
  }
}

// All ranks have the error, but it is rank 0's.
TEST_F(WorldTest, BlamesTheRankWhoseErrorTheOthersHaveHeard) {
  setenv("FAULT", "save", 1);
  setenv("FAULT_AT", "30", 1);
  EXPECT_EQ(Wait(StartTraining(3, 60)), 1) << Err();
  EXPECT_THAT(Err(), ContainsRegex("rank 0 failed in step 30: no space left for the file of step 30; the job "
                                   "ends, since this cause came 3 times within 10 steps: rank 0 in step 30, rank 0 in "
                                   "step 30, rank 0 in step 30"));
  EXPECT_THAT(Err(), Not(HasSubstr("error of rank 1")));
  EXPECT_THAT(Err(), Not(HasSubstr("error of rank 2")));
}

TEST_F(WorldTest, RepeatsAStepAfterAnError) {
  const std::string quiet = DigestOfQuietRun(3, 60);
  setenv("FAULT", "error_once", 1);
  setenv("FAULT_AT", "30", 1);
  EXPECT_EQ(Wait(StartTraining(3, 60)), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(Err(), HasSubstr("error of rank 0 in step 30: sample 240 is broken"));
}

TEST_F(WorldTest, EndsTheJobIfProcessesEndAgainAndAgain) {
  setenv("FAULT", "exit", 1);
  setenv("FAULT_AT", "30", 1);
  EXPECT_EQ(Wait(StartTraining(4, 60)), 1) << Err();
  EXPECT_THAT(Err(), HasSubstr("rank 0 failed in step 30: exited with code 3; the job ends"));
}

// As a run does that continues from a checkpoint of 500 steps. Processes that come later are told.
TEST_F(WorldTest, CountsStepsFromTheOneThatItBeginsAt) {
  setenv("BEGIN_AT", "500", 1);
  setenv("FAULT_AT", "30", 1);
  for (const auto& [fault, ranks, cause] : {std::tuple("error", 3, "sample 240 is broken"),  //
                                            std::tuple("exit", 4, "exited with code 3")}) {
    setenv("FAULT", fault, 1);
    EXPECT_EQ(Wait(StartTraining(ranks, 60)), 1) << Err();
    EXPECT_THAT(Err(), HasSubstr(absl::StrCat("rank 0 failed in step 530: ", cause, "; the job ends, since this cause ",
                                              "came 3 times within 10 steps: rank 0 in step 530, rank 0 in step 530, ",
                                              "rank 0 in step 530")));
    EXPECT_THAT(Err(), Not(HasSubstr("in step 30")));
  }
}

TEST_F(WorldTest, EndsTheJobIfRanksAreStuckAgainAndAgain) {
  setenv("FAULT", "stuck", 1);
  setenv("FAULT_AT", "30", 1);
  setenv("TIMEOUT_MS", "4000", 1);
  setenv("LEAVE_MS", "1000", 1);
  EXPECT_EQ(Wait(StartTraining(4, 60)), 1) << Err();
  EXPECT_THAT(Err(),
              ContainsRegex("rank [0-9] failed in step 30: was killed by signal 9 \\(SIGKILL\\): it had not left "
                            "generation [0-9]+ in time; the job ends, since this cause came 3 times within 10 "
                            "steps: rank 3 in step 30, rank 2 in step 30, rank [0-9] in step 30"));
}

TEST_F(WorldTest, FindsEveryFlippedBitAndNamesItsTensor) {
  constexpr int kFlips = 50, kEvery = 4;
  const int flips = getenv("FLIPS") ? atoi(getenv("FLIPS")) : kFlips;
  setenv("FAULT", "flips", 1);
  setenv("CHECK_EVERY", absl::StrCat(kEvery).c_str(), 1);
  EXPECT_EQ(Wait(StartTraining(3, flips * kEvery)), 0) << Err();
  const std::vector<std::string> made = absl::StrSplit(ReadFile(folder_ + "flips"), '\n', absl::SkipEmpty());
  ASSERT_EQ(made.size(), flips);
  for (int i = 0; i < flips; ++i) {
    const std::vector<std::string> words = absl::StrSplit(made[i], absl::MaxSplits(" net: ", 1));
    EXPECT_THAT(Err(),
                HasSubstr(absl::StrCat("World: after step ", (i + 1) * kEvery - 1, " ", words[0],
                                       " differs in net: ", words[1], "; it gets the state of the other ranks")));
  }
}

TEST_F(WorldTest, EndsIfNoMajorityOfRanksIsEqual) {
  setenv("FAULT", "flips", 1);
  setenv("CHECK_EVERY", "4", 1);
  EXPECT_EQ(Wait(StartTraining(2, 60, {"--max_restarts=1"})), 1) << Err();
  EXPECT_THAT(Err(), HasSubstr("World: after step 3 ranks 0, 1 differ in net: "));
  EXPECT_THAT(Err(), HasSubstr(", and no majority of ranks is equal"));
}

TEST_F(WorldTest, WaitsForMinRanks) {
  const std::string quiet = DigestOfQuietRun(2, 200);
  setenv("MIN_RANKS", "2", 1);
  setenv("PAUSE_US", "5000", 1);
  const pid_t launcher = StartTraining(2, 200);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(200));
  kill(Last()[0].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(ReadFile(folder_ + "generations"), Not(HasSubstr(" of 1,")));  // alone, a rank does not train
}

TEST_F(WorldTest, LetsProcessesBeyondMaxRanksWait) {
  const std::string quiet = DigestOfQuietRun(2, 200);
  setenv("MAX_RANKS", "2", 1);
  setenv("PAUSE_US", "5000", 1);
  const pid_t launcher = StartTraining(3, 200);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(200));
  kill(Last()[0].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(ReadFile(folder_ + "generations"), Not(HasSubstr(" of 3,")));
  EXPECT_THAT(ReadFile(folder_ + "generations"), Not(HasSubstr(" of 1,")));  // the one that waits takes the place
  EXPECT_THAT(Err(), HasSubstr("the program takes 2 ranks at most; 1 process waits to take a rank's place\n"));
}

TEST_F(WorldTest, SaysWhichRankItWaitsForAndKillsIt) {
  const std::string quiet = DigestOfQuietRun(1, 100);
  setenv("PAUSE_US", "10000", 1);
  const pid_t launcher = StartTraining(3, 100);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  const std::vector<Place> places = Last();
  kill(places[0].pid, SIGSTOP);
  kill(places[1].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  EXPECT_THAT(Err(), HasSubstr(absl::StrCat(", pid ", places[1].pid, ") was killed by signal 9 (SIGKILL); the next ",
                                            "generation waits for rank ", places[0].rank, " (local rank ",
                                            places[0].rank, ", pid ", places[0].pid, ", stopped)\n")));
  EXPECT_THAT(Err(),
              HasSubstr(absl::StrCat(places[0].pid, ", stopped) has not left generation 1 in time and is killed")));
}

TEST_F(WorldTest, GivesUpWaitingWithAResumableError) {
  setenv("MIN_RANKS", "2", 1);
  setenv("WAIT_MS", "1000", 1);
  setenv("PAUSE_US", "5000", 1);
  setenv("FAULT", "late", 1);  // the process that is started again does not come in time
  const pid_t launcher = StartTraining(2, 1000);
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  absl::SleepFor(absl::Milliseconds(200));
  kill(Last()[0].pid, SIGKILL);
  EXPECT_EQ(Wait(launcher), 75) << Err();
  EXPECT_THAT(Err(), HasSubstr("World: 1 of at least 2 ranks were there for 1s; "));
  EXPECT_THAT(ReadFile(folder_ + "resumable"), Not(::testing::IsEmpty()));
}

TEST_F(WorldTest, NamesMistakes) {
  setenv("MIN_RANKS", "3", 1);
  EXPECT_EQ(Wait(StartTraining(2, 10, {"--max_restarts=1"})), 1);
  EXPECT_THAT(Err(), HasSubstr("World: min_ranks is 3, but the launcher has started 2 ranks"));
  unsetenv("MIN_RANKS");
  setenv("FAULT", "other_name", 1);
  EXPECT_EQ(Wait(StartTraining(2, 10)), 1);
  EXPECT_THAT(Err(), HasSubstr("World: the ranks keep different things: rank 0 keeps \"net\", \"optimizer\""));
  EXPECT_THAT(Err(), HasSubstr("the job ends, since this cause came 3 times"));
  unsetenv("FAULT");
  setenv("BACKEND", "pigeon", 1);
  EXPECT_EQ(Wait(StartTraining(2, 10)), 1);
  EXPECT_THAT(Err(), HasSubstr("pigeon"));
  EXPECT_THAT(Err(), HasSubstr("the job ends, since this cause came 3 times"));
  unsetenv("BACKEND");
  setenv("BEGIN_AT", "-1", 1);
  EXPECT_EQ(Wait(StartTraining(2, 10)), 1);
  EXPECT_THAT(Err(), HasSubstr("World::BeginAt: expected a step of at least 0, found -1"));
  unsetenv("BEGIN_AT");
  setenv("FAULT", "nothing_kept", 1);
  EXPECT_EQ(Wait(StartTraining(1, 10)), 1);
  EXPECT_THAT(Err(), HasSubstr("World::Run: nothing is kept: call Keep() before"));
}

// The rank that takes the place of one that was killed.
TEST_F(WorldTest, ANewRankThatKeepsOtherThingsFailsAlone) {
  const std::string quiet = DigestOfQuietRun(3, 200);
  struct Case {
    const char* fault;
    const char* difference;
  };
  for (const Case& c : {Case{"new_name", "rank 0 keeps \"net\", \"optimizer\".*; rank 2 keeps \"net\", \"other\", "},
                        Case{"new_shape", "net: .*1101"}}) {
    SCOPED_TRACE(c.fault);
    setenv("PAUSE_US", "20000", 1);
    setenv("FAULT", c.fault, 1);
    const pid_t launcher = StartTraining(3, 200, {"--max_restarts=1"});
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    absl::SleepFor(absl::Milliseconds(200));
    kill(Last()[1].pid, SIGKILL);
    EXPECT_EQ(Wait(launcher), 0) << Err();
    EXPECT_EQ(ReadFile(folder_ + "digest"), quiet);
    EXPECT_THAT(Err(), ContainsRegex(absl::StrCat("World: rank 2 keeps other things than rank 0, which has the state: ",
                                                  c.difference)));
    EXPECT_THAT(Err(), ContainsRegex("; local rank [0-2] is not started again\n"));
    EXPECT_THAT(Err(), HasSubstr("generation 4 has 2 ranks"));
    remove((folder_ + "digest").c_str());
    remove((folder_ + "generations").c_str());
  }
}

// torchrun, srun and mpirun set such variables.
constexpr char kTwoRanks[] = R"(
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
    RANK=1 $SMALL_TRAINING 2> $D/rank1 &
    RANK=0 $SMALL_TRAINING)";

TEST_F(WorldTest, TrainsWithoutLockstepsLaunchToTheSameBits) {
  const std::string quiet = DigestOfQuietRun(3, 60);
  setenv("STEPS", "60", 1);
  EXPECT_EQ(RunScript("$SMALL_TRAINING"), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  remove((folder_ + "digest").c_str());
  setenv("MASTER_PORT", absl::StrCat(*launch::FreePort()).c_str(), 1);
  EXPECT_EQ(RunScript(absl::StrCat(kTwoRanks, "; code=$?; wait $! && exit $code")), 0) << Err();
  EXPECT_EQ(ReadFile(folder_ + "digest"), quiet) << Err();
  unsetenv("MASTER_PORT");
}

TEST_F(WorldTest, EndsWithTheFirstCauseWithoutLockstepsLaunch) {
  setenv("STEPS", "1000000", 1);
  setenv("PAUSE_US", "1000", 1);
  setenv("MASTER_PORT", absl::StrCat(*launch::FreePort()).c_str(), 1);
  const pid_t script = StartScript(absl::StrCat(kTwoRanks, "; exit $?"));
  ASSERT_TRUE(AwaitGeneration(1)) << Err();
  for (const Place& place : Last()) {
    if (place.rank == 1) kill(place.pid, SIGKILL);
  }
  EXPECT_EQ(Wait(script), 1);
  EXPECT_THAT(Err(), ContainsRegex("rank 1 \\(host [^,]+, pid [0-9]+\\) died"));
  unsetenv("MASTER_PORT");
}

TEST_F(WorldTest, LaunchStartsAllRanksAgainThatDoNotRegroup) {
  setenv("REGROUPS", "0", 1);
  setenv("PAUSE_US", "1000", 1);
  const pid_t launcher = StartTraining(2, 1000000, {"--max_restarts=1"});
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(AwaitGeneration(1)) << Err();
    const std::vector<Place> places = Last();
    remove((folder_ + "generations").c_str());
    for (const Place& place : places) {
      if (place.rank == 1) kill(place.pid, SIGKILL);
    }
  }
  EXPECT_EQ(Wait(launcher), 128 + SIGKILL);
  EXPECT_THAT(Err(), ContainsRegex("rank 1 \\(local rank 1, pid [0-9]+\\) was killed by signal 9.*restart 1 of 1"));
  EXPECT_THAT(Err(), HasSubstr("after 1 restart"));
  EXPECT_THAT(Err(), Not(HasSubstr("generation 2")));
}

TEST_F(WorldTest, RunsOnceWithoutLockstepsLaunch) {
  setenv("STEPS", "10", 1);
  setenv("FAULT", "runs_twice", 1);
  setenv("FAULT_RANK", "1", 1);
  EXPECT_EQ(RunScript("$SMALL_TRAINING"), 1);
  EXPECT_THAT(Err(), HasSubstr("World::Run: the ranks have left their group, and form no other one"));
}

TEST(World, IsJoinedOnceInAProcess) {
  const absl::StatusOr<std::unique_ptr<World>> world = World::Join();
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_FALSE((*world)->is_elastic());
  EXPECT_EQ(World::Join().status(), absl::FailedPreconditionError("World::Join: this process has called it before"));
}

TEST(World, ChecksItsNumbersOfRanks) {
  Options options;
  options.min_ranks = 0;
  EXPECT_EQ(World::Join(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.min_ranks = 3;
  options.max_ranks = 2;
  EXPECT_EQ(World::Join(options).status(),
            absl::InvalidArgumentError("World: max_ranks must be 0, or at least min_ranks, which is 3, but is 2"));
}

// Ranks that wait for one that is stuck would give up before it is killed, and the state would be lost.
TEST(World, ChecksItsOptionsAgainstEachOther) {
  Options options;
  options.timeout = absl::Seconds(9);
  EXPECT_EQ(World::Join(options).status(),
            absl::InvalidArgumentError("World: timeout must be at least leave_timeout, which is 10s, but is 9s"));
  options = {};
  options.wait_for_ranks = absl::Seconds(-1);
  EXPECT_EQ(World::Join(options).status(),
            absl::InvalidArgumentError("World: wait_for_ranks must not be negative, but is -1s"));
  options = {};
  options.failures_per_cause = -1;
  EXPECT_EQ(World::Join(options).status(),
            absl::InvalidArgumentError("World: failures_per_cause must not be negative, but is -1"));
}

}  // namespace
}  // namespace lockstep::elastic
