#include "lockstep/launch/spawn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::MatchesRegex;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Ranks run the current test only, which shows what `name` and `arguments` are for.
SpawnOptions ThisTest() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions options;
  options.name = absl::StrCat(test->test_suite_name(), ".", test->name());
  options.arguments = {"--gtest_filter=" + options.name};
  return options;
}

bool InRank() { return getenv("LOCAL_RANK") != nullptr; }

// A folder that parent and ranks have in common.
std::string SharedFolder(SpawnOptions* options) {
  if (InRank()) return getenv("FOLDER");
  return options->environment["FOLDER"] = testing::NewFolder();
}

TEST(Spawn, RunsTheFunctionInEveryRank) {
  SpawnOptions options = ThisTest();
  const std::string folder = SharedFolder(&options);
  const absl::Status status = Spawn(
      3,
      [&](int local_rank) {
        std::ofstream(absl::StrCat(folder, local_rank)) << getenv("RANK") << getenv("WORLD_SIZE");
        return absl::OkStatus();
      },
      options);
  EXPECT_EQ(status, absl::OkStatus());
  for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(testing::ReadFile(folder + rank), absl::StrCat(rank, "3"));
}

TEST(Spawn, ReturnsARanksErrorWithItsCode) {
  const absl::Status status = Spawn(
      2,
      [](int local_rank) {
        if (local_rank == 1) return absl::DataLossError("record 7\nis damaged");
        pause();
        return absl::OkStatus();
      },
      ThisTest());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 1 \\(local rank 1, pid [0-9]+\\) exited with code 1: record 7 is damaged; the other "
                           "rank was ended"));
  EXPECT_EQ(FirstFailure(status)->message, "record 7 is damaged");
}

TEST(Spawn, LeavesNoDescriptors) {
  const SpawnOptions options = ThisTest();
  const int before = testing::OpenDescriptors(getpid());
  EXPECT_EQ(Spawn(
                2, [](int) { return absl::OkStatus(); }, options),
            absl::OkStatus());
  EXPECT_EQ(testing::OpenDescriptors(getpid()), before);
  EXPECT_TRUE(absl::IsDataLoss(Spawn(
      2, [](int) { return absl::DataLossError("torn page"); }, options)));
  EXPECT_EQ(testing::OpenDescriptors(getpid()), before);
}

TEST(SpawnUnlessLaunched, SpawnsByHandAndRunsInPlaceUnderALauncher) {
  const SpawnOptions options = ThisTest();
  const pid_t parent = getpid();
  // Spawned: fn runs in other processes.
  EXPECT_EQ(
      SpawnUnlessLaunched(
          2, [&](int) { return getppid() == parent || InRank() ? absl::OkStatus() : absl::InternalError("here"); },
          options),
      absl::OkStatus());
  // As under torchrun: fn runs here, and its error comes back as it is.
  setenv("RANK", "3", 1);
  setenv("LOCAL_RANK", "1", 1);
  pid_t ran_in = 0;
  int seen = -1;
  const absl::Status status = SpawnUnlessLaunched(2, [&](int local_rank) {
    ran_in = getpid();
    seen = local_rank;
    return absl::DataLossError("torn page");
  });
  EXPECT_EQ(status, absl::DataLossError("torn page"));
  EXPECT_EQ(ran_in, getpid());
  EXPECT_EQ(seen, 1);
  setenv("LOCAL_RANK", "one", 1);
  EXPECT_EQ(Message(SpawnUnlessLaunched(2, [](int) { return absl::OkStatus(); })),
            "environment variable LOCAL_RANK=\"one\" is not a number");
  unsetenv("RANK");
  unsetenv("LOCAL_RANK");
}

// The local rank with which fn runs in this process; -1 if it runs in others.
int LocalRankInPlace() {
  int seen = -1;
  const auto note = [&seen](int local_rank) {
    seen = local_rank;
    return absl::OkStatus();
  };
  EXPECT_EQ(SpawnUnlessLaunched(1, note, ThisTest()), absl::OkStatus());
  return seen;
}

TEST(SpawnUnlessLaunched, RunsInPlaceAsOneOfSeveralProcessesOfMpirunAndSrun) {
  const char* const launchers[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                      {"PMI_SIZE", "MPI_LOCALRANKID"},
                                      {"PMI_SIZE", "PMI_LOCAL_RANK"},
                                      {"SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
  for (const auto& [world_size, local_rank] : launchers) {
    if (!InRank()) {
      setenv(world_size, "4", 1);
      setenv(local_rank, "3", 1);
      EXPECT_EQ(LocalRankInPlace(), 3) << local_rank;
      // A program that is alone starts its own ranks.
      setenv(world_size, "1", 1);
    }
    EXPECT_EQ(LocalRankInPlace(), -1) << local_rank;
    unsetenv(world_size);
    unsetenv(local_rank);
  }
  // In a script of sbatch, outside of srun.
  setenv("SLURM_PROCID", "0", 1);
  setenv("SLURM_NTASKS", "4", 1);
  setenv("SLURM_LOCALID", "0", 1);
  EXPECT_EQ(LocalRankInPlace(), -1);
  for (const char* name : {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}) unsetenv(name);
}

TEST(Spawn, CutsALongMessage) {
  const absl::Status status = Spawn(
      1, [](int) { return absl::InternalError(std::string(1 << 20, 'x')); }, ThisTest());
  EXPECT_EQ(FirstFailure(status)->message.size(), 4096);
  EXPECT_THAT(FirstFailure(status)->message, ::testing::EndsWith("x ... (1048576 bytes)"));
}

TEST(Spawn, AnExceptionIsTheRanksError) {
  const auto thrown = [](int) -> absl::Status {
    throw std::runtime_error(
        "shapes differ\nException raised from add at add.cpp:1 (most recent call first):\nframe #0: 0x0");
  };
  const absl::Status status = Spawn(1, thrown, ThisTest());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* exited with code 1: exception: shapes differ"));
}

// The exception is that of a failed allocation.
TEST(Spawn, AnotherFormOfAnExceptionsStackIsLeftOutToo) {
  const auto thrown = [](int) -> absl::Status {
    throw std::runtime_error("can't allocate memory: you tried to allocate 8 bytes.\nframe #0: 0x0\nframe #1: 0x1");
  };
  EXPECT_THAT(Message(Spawn(1, thrown, ThisTest())),
              MatchesRegex("rank 0 .* exited with code 1: exception: can't allocate memory: you tried to allocate 8 "
                           "bytes."));
}

TEST(Spawn, AnExceptionInAnotherThreadIsTold) {
  const absl::Status status = Spawn(
      1,
      [](int) {
        const rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        std::thread([] { throw std::runtime_error("the disk is full"); }).join();
        return absl::OkStatus();
      },
      ThisTest());
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* was killed by signal 6 \\(SIGABRT\\): uncaught exception: the "
                                            "disk is full"));
}

TEST(Spawn, TheFirstReportOfARankStands) {
  const absl::Status status = Spawn(
      1,
      [](int) {
        ReportError(absl::NotFoundError("the cause"));
        return absl::InternalError("the consequence");
      },
      ThisTest());
  EXPECT_EQ(FirstFailure(status)->message, "the cause");
}

TEST(Spawn, ASignalIsNamed) {
  const absl::Status status = Spawn(
      2,
      [](int local_rank) {
        if (local_rank == 0) raise(SIGKILL);
        pause();
        return absl::OkStatus();
      },
      ThisTest());
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 0 .* was killed by signal 9 \\(SIGKILL\\); the other rank was ended"));
}

TEST(Spawn, ARankThatExitsEarlyHasFailedEvenWithCodeZero) {
  const absl::Status status = Spawn(
      1, [](int) -> absl::Status { _exit(0); }, ThisTest());
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* exited with code 0: it ended before its work did"));
  EXPECT_EQ(ExitCode(status), 1);
}

TEST(Spawn, ARankThatNeverComesToTheCallHasFailed) {
  if (InRank()) return;
  const absl::Status status = Spawn(
      1, [](int) { return absl::OkStatus(); }, ThisTest());
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .* exited with code 0: it ended before its work did"));
}

TEST(Spawn, ASecondCallFindsTheFirstOnesResult) {
  const SpawnOptions options = ThisTest();
  const absl::Status first = Spawn(
      1, [](int) { return absl::NotFoundError("no\tfile"); }, options);
  EXPECT_EQ(first.code(), absl::StatusCode::kNotFound);
  const absl::Status second = Spawn(
      1, [&](int) { return absl::InternalError(first.message()); }, options);
  EXPECT_THAT(Message(second), MatchesRegex("rank 0 .*: rank 0 .* exited with code 1: no file"));
}

TEST(Spawn, ACallThatTheParentDidNotMakeIsRefused) {
  SpawnOptions other = ThisTest();
  other.name = "another";
  absl::Status refused;
  if (InRank())
    refused = Spawn(
        1, [](int) { return absl::OkStatus(); }, other);
  const absl::Status status = Spawn(
      1, [&](int) { return refused; }, ThisTest());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 0 .* a rank of Spawn call Spawn.ACallThatTheParentDidNotMakeIsRefused#1 came to call "
                           "another#1, which its parent had not made: .*"));
}

TEST(Spawn, ARankCannotSpawn) {
  const auto nothing = [](int) { return absl::OkStatus(); };
  const absl::Status status = Spawn(
      1, [&](int) { return Spawn(1, nothing); }, ThisTest());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              MatchesRegex("rank 0 .*: Spawn was called inside a rank of Spawn call Spawn.ARankCannotSpawn#1; a rank "
                           "cannot spawn ranks"));
}

// Returns OK if a peer gets through to the socket that rank 0 inherited.
absl::Status AcceptFromRankOne(int local_rank) {
  int port, fd;
  if (!absl::SimpleAtoi(getenv("MASTER_PORT"), &port)) return absl::InternalError("no port");
  if (local_rank == 0) {
    if (!absl::SimpleAtoi(getenv("LOCKSTEP_MASTER_LISTEN_FD"), &fd)) return absl::InternalError("no descriptor");
    return accept(fd, nullptr, nullptr) >= 0 ? absl::OkStatus() : absl::InternalError("accept");
  }
  if (getenv("LOCKSTEP_MASTER_LISTEN_FD")) return absl::InternalError("rank 1 has the descriptor too");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  const bool connected = connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  return connected ? absl::OkStatus() : absl::InternalError("connect");
}

TEST(Spawn, RankZeroInheritsTheSocketAtMasterPort) {
  EXPECT_EQ(Spawn(2, AcceptFromRankOne, ThisTest()), absl::OkStatus());
}

TEST(Spawn, RanksHaveTheProgramsName) {
  const absl::Status status = Spawn(
      1,
      [](int) {
        char name[16];
        prctl(PR_GET_NAME, name);
        return absl::InternalError(name);
      },
      ThisTest());
  EXPECT_EQ(FirstFailure(status)->message, "spawn_test");
}

TEST(Spawn, ZeroRanksAreRefused) {
  const absl::Status status = Spawn(0, [](int) { return absl::OkStatus(); });
  EXPECT_EQ(status, absl::InvalidArgumentError("nproc_per_node must be at least 1, but is 0"));
}

}  // namespace
}  // namespace lockstep::launch
