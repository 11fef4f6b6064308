// Every rank's error when another dies, stops, leaves or throws in the middle of the work, and the time until the
// error.

#include <ATen/ATen.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/failures/backends.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::comm {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::Process;
using testing::SayStatus;
using ::testing::StartsWith;

std::unique_ptr<ProcessGroup> Join(const InitOptions& options) {
  auto group = InitProcessGroup(options);
  if (!group.ok()) fprintf(stderr, "%s\n", group.status().ToString().c_str());
  return std::move(group).value();
}

// All-reduces 4 MiB again and again; says so when it is well under way, and the first error.
absl::Status ReduceUntilItFails(ProcessGroup& group, const Process::Say& say) {
  const at::Tensor tensor = at::ones({1 << 20});
  const absl::Time end = absl::Now() + absl::Seconds(25);
  absl::Status status;
  for (int i = 0; status.ok() && absl::Now() < end; ++i) {
    if (i == 3) say("in call");
    status = group.AllReduce(tensor, ReduceOp::kMax);
  }
  SayStatus(say, status);
  return status;
}

// A rank's life: reduce until it fails, then ask once more, and end, saying when.
int ReduceAndEnd(const InitOptions& options, const Process::Say& say) {
  std::unique_ptr<ProcessGroup> group = Join(options);
  ReduceUntilItFails(*group, say).IgnoreError();
  SayStatus(say, group->Barrier());
  SayStatus(say, group->failure());
  say("destroying");
  group.reset();
  say("returning");
  return 0;
}

// Matches the status of a call: the cause with the call's name, or the bare cause where the group had failed before the
// call.
auto SaysCause(const std::string& code, int rank, const std::string& call, const std::string& cause) {
  return AnyOf(absl::StrCat(code, ": rank ", rank, ": ", call, ": ", cause), absl::StrCat(code, ": ", cause));
}

// The latest of some times, by which a failure was known; printed, since docs/failures.md shows them.
class Latest {
 public:
  void Record(absl::Duration time) { latest_ = std::max(latest_, time); }
  void Print(const std::string& what) const {
    printf("MEASURED %s: %.3f s\n", what.c_str(), absl::ToDoubleSeconds(latest_));
  }

 private:
  absl::Duration latest_;
};

class RanksFail : public FailureTest {
 protected:
  struct StoppedRank {
    std::unique_ptr<Ranks> ranks;
    int victim;
    absl::Duration stopped;
  };

  // Expects the rank to report its group's end: the first cause, again, at once, and nothing waits.
  static void ExpectAQuickEnd(Ranks& ranks, int rank, const Process::Line& first, const std::string& cause) {
    const auto again = ranks.AwaitStatus(rank), failure = ranks.AwaitStatus(rank);
    const auto destroying = ranks[rank].AwaitLine("destroying"), returning = ranks[rank].AwaitLine("returning");
    ASSERT_TRUE(again && failure && destroying && returning) << "rank " << rank;
    EXPECT_THAT(again->text, HasSubstr(cause));
    EXPECT_THAT(failure->text, HasSubstr(cause));
    EXPECT_LT(again->time - first.time, absl::Milliseconds(500));
    EXPECT_LT(returning->time - destroying->time, absl::Seconds(1)) << "the destructor of rank " << rank;
    EXPECT_EQ(ranks[rank].Wait(), 0);
    // LibTorch's destructors of static objects take half a second of a processor in each rank, beside other tests.
    EXPECT_LT(ranks[rank].end_time() - returning->time, absl::Seconds(10)) << "the exit of rank " << rank;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RanksFail, ::testing::ValuesIn(BackendsUnderTest()),
                         [](const auto& param) { return param.param; });

TEST_P(RanksFail, AKilledRankIsNamedOnAllOthersWithin2s) {
  Latest latest;
  for (const int size : Sizes()) {
    for (const int victim : {0, size - 1}) {
      Ranks ranks(size, Options(), ReduceAndEnd);
      ASSERT_TRUE(ranks.AwaitAll("in call"));
      const absl::Duration killed = ranks.Signal(victim, SIGKILL);
      const std::string cause = ranks.name(victim) + " died: signal 9 (Killed)";
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        const auto status = ranks.AwaitStatus(rank);
        ASSERT_TRUE(status) << "rank " << rank;
        EXPECT_THAT(status->text, StartsWith(absl::StrCat("UNAVAILABLE: rank ", rank, ": all_reduce #")));
        EXPECT_THAT(status->text, HasSubstr(" of Float [1048576] on cpu: " + cause));
        EXPECT_LT(status->time - killed, absl::Seconds(2));
        latest.Record(status->time - killed);
        ExpectAQuickEnd(ranks, rank, *status, cause);
      }
    }
  }
  latest.Print(GetParam() + ", SIGKILL in mid-collective to the last survivor's error");
}

TEST_P(RanksFail, AStoppedRankIsNamedWithin2sOfTheTimeout) {
  const absl::Duration timeout = absl::Seconds(2);
  Latest latest;
  for (const int size : Sizes()) {
    // The second group starts while the first one waits for its timeout.
    std::vector<StoppedRank> groups;
    for (const int victim : {0, size - 1}) {
      auto ranks = std::make_unique<Ranks>(size, Options(timeout), ReduceAndEnd);
      ASSERT_TRUE(ranks->AwaitAll("in call"));
      const absl::Duration stopped = ranks->Signal(victim, SIGSTOP);
      groups.push_back({std::move(ranks), victim, stopped});
    }
    for (auto& [ranks, victim, stopped] : groups) {
      const std::string cause = ranks->name(victim) + " is stopped";
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        const auto status = ranks->AwaitStatus(rank);
        ASSERT_TRUE(status) << "rank " << rank;
        EXPECT_THAT(status->text, StartsWith(absl::StrCat("DEADLINE_EXCEEDED: rank ", rank, ": all_reduce #")));
        EXPECT_THAT(status->text, MatchesRegex(".* on cpu: all_reduce #[0-9]+ timed out after 2s: .*"));
        EXPECT_THAT(status->text, HasSubstr(cause));
        EXPECT_LT(status->time - stopped, timeout + absl::Seconds(2));
        latest.Record(status->time - stopped - timeout);
        ExpectAQuickEnd(*ranks, rank, *status, cause);
      }
    }
  }
  latest.Print(GetParam() + ", SIGSTOP: the last survivor's error after the timeout");
}

TEST_P(RanksFail, ARankThatExitsBeforeItsFirstCallIsNamed) {
  for (const int victim : {0, 2}) {
    Ranks ranks(3, Options(), [victim](const InitOptions& options, const Process::Say& say) {
      std::unique_ptr<ProcessGroup> group = Join(options);
      if (options.rank == victim) signal(SIGUSR1, [](int) { _exit(3); });
      say("joined");
      if (options.rank == victim) pause();
      SayStatus(say, group->AllReduce(at::ones({3})));
      return 0;
    });
    ASSERT_TRUE(ranks.AwaitAll("joined"));
    const absl::Duration exited = ranks.Signal(victim, SIGUSR1);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const auto status = ranks.AwaitStatus(rank);
      ASSERT_TRUE(status);
      EXPECT_THAT(status->text, SaysCause("UNAVAILABLE", rank, "all_reduce #0 of Float [3] on cpu",
                                          ranks.name(victim) + " exited with code 3"));
      EXPECT_LT(status->time - exited, absl::Seconds(2));
    }
  }
}

// All but the victim broadcast, once they have SIGUSR1. Over hierarchical this is the first call of the flat group,
// whose ranks are not connected yet.
std::unique_ptr<Ranks> RanksThatBroadcast(const InitOptions& options, int victim) {
  return std::make_unique<Ranks>(3, options, [victim](const InitOptions& own, const Process::Say& say) {
    static sem_t told_to_begin;
    sem_init(&told_to_begin, /*pshared=*/0, 0);
    signal(SIGUSR1, [](int) { sem_post(&told_to_begin); });
    std::unique_ptr<ProcessGroup> group = Join(own);
    say("joined");
    while (own.rank == victim) pause();
    while (sem_wait(&told_to_begin) != 0) continue;
    say("in call");
    SayStatus(say, group->Broadcast(at::ones({3}), /*root=*/victim));
    return 0;
  });
}

class RanksThatHaveExchangedNothing : public RanksFail {
 protected:
  // The victim is of another host than one of the others, and of another than both. Each gets `number`.
  struct Lost {
    std::unique_ptr<Ranks> ranks;
    int victim;
    absl::Duration time;
  };
  static Lost Lose(const InitOptions& options, int victim, int number) {
    auto ranks = RanksThatBroadcast(options, victim);
    EXPECT_TRUE(ranks->AwaitAll("joined"));
    const bool stops = number == SIGSTOP;
    absl::Duration time = stops ? ranks->Signal(victim, number) : absl::ZeroDuration();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      ranks->Signal(rank, SIGUSR1);
      EXPECT_TRUE((*ranks)[rank].AwaitLine("in call"));
    }
    absl::SleepFor(absl::Milliseconds(200));  // until they wait for the victim
    if (!stops) time = ranks->Signal(victim, number);
    return {std::move(ranks), victim, time};
  }

  static void ExpectNamed(const Lost& lost, const std::string& code, const std::string& fate, absl::Duration limit) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost.victim) continue;
      const auto status = lost.ranks->AwaitStatus(rank);
      ASSERT_TRUE(status) << "rank " << rank;
      EXPECT_THAT(status->text,
                  StartsWith(absl::StrCat(code, ": rank ", rank, ": broadcast #0 of Float [3] on cpu: ")));
      EXPECT_THAT(status->text, HasSubstr(lost.ranks->name(lost.victim) + fate));
      EXPECT_LT(status->time - lost.time, limit) << status->text;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RanksThatHaveExchangedNothing, ::testing::Values("hierarchical"),
                         [](const auto& param) { return param.param; });

TEST_P(RanksThatHaveExchangedNothing, NameARankThatIsKilledBeforeItConnects) {
  for (const int victim : {1, 2}) {
    ExpectNamed(Lose(Options(), victim, SIGKILL), "UNAVAILABLE", " died: signal 9 (Killed)", absl::Seconds(2));
  }
}

TEST_P(RanksThatHaveExchangedNothing, NameARankThatIsStoppedBeforeItConnects) {
  const absl::Duration timeout = absl::Seconds(2);
  std::vector<Lost> lost;  // they wait for their timeouts at the same time
  for (const int victim : {1, 2}) lost.push_back(Lose(Options(timeout), victim, SIGSTOP));
  for (const Lost& one : lost) ExpectNamed(one, "DEADLINE_EXCEEDED", " is stopped", timeout + absl::Seconds(2));
}

// It leaves once all are out of the barrier: over Gloo it could else break the barrier of a rank that is still in it
// (docs/failures.md).
TEST_P(RanksFail, ARankThatLeavesBeforeTheOthersAreDoneIsNamed) {
  for (const int victim : {0, 2}) {
    Ranks ranks(3, Options(), [victim](const InitOptions& options, const Process::Say& say) {
      static sem_t told_to_leave;
      sem_init(&told_to_leave, /*pshared=*/0, 0);
      signal(SIGUSR1, [](int) { sem_post(&told_to_leave); });
      std::unique_ptr<ProcessGroup> group = Join(options);
      SayStatus(say, group->Barrier());
      if (options.rank == victim) return sem_wait(&told_to_leave);
      SayStatus(say, group->AllReduce(at::ones({3})));
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto status = ranks.AwaitStatus(rank);
      ASSERT_TRUE(status);
      EXPECT_EQ(status->text, "OK");
    }
    const absl::Duration left = ranks.Signal(victim, SIGUSR1);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const auto status = ranks.AwaitStatus(rank);
      ASSERT_TRUE(status);
      EXPECT_THAT(status->text, SaysCause("UNAVAILABLE", rank, "all_reduce #1 of Float [3] on cpu",
                                          ranks.name(victim) + " left the group after barrier #0"));
      EXPECT_LT(status->time - left, absl::Seconds(2));
    }
  }
}

// Expects the error of the others of three when rank 1, after a barrier, does `fail`.
void ExpectFailureOfRank1(const InitOptions& options, const std::function<void(ProcessGroup&)>& fail,
                          const std::string& message) {
  Ranks ranks(3, options, [&](const InitOptions& own, const Process::Say& say) {
    try {
      std::unique_ptr<ProcessGroup> group = Join(own);
      group->Barrier().IgnoreError();
      say("failing");
      if (own.rank == 1) fail(*group);
      SayStatus(say, group->AllReduce(at::ones({3})));
    } catch (const std::out_of_range&) {
      say("caught");
      pause();  // the process goes on: its death tells nobody
    }
    return 0;
  });
  const auto failed = ranks[1].AwaitLine("failing");
  ASSERT_TRUE(failed);
  for (const int rank : {0, 2}) {
    const auto status = ranks.AwaitStatus(rank);
    ASSERT_TRUE(status);
    EXPECT_THAT(status->text, SaysCause("ABORTED", rank, "all_reduce #1 of Float [3] on cpu",
                                        absl::StrCat(ranks.name(1), " failed: ", message)));
    EXPECT_LT(status->time - failed->time, absl::Seconds(2));
  }
}

TEST_P(RanksFail, AnUncaughtExceptionReachesTheOthersAsItsMessage) {
  ExpectFailureOfRank1(
      Options(), [](ProcessGroup&) { throw std::runtime_error("the disk is full"); },
      "uncaught exception: the disk is full");
}

TEST_P(RanksFail, AnExceptionThroughTheGroupsScopeReachesTheOthersAtOnce) {
  ExpectFailureOfRank1(
      Options(), [](ProcessGroup&) { throw std::out_of_range("no such file"); }, "left by an exception");
}

TEST_P(RanksFail, AnAbortReachesTheOthersAsItsMessage) {
  ExpectFailureOfRank1(
      Options(),
      [](ProcessGroup& group) {
        group.Abort(absl::DataLossError("sample 7 is damaged"));
        throw std::out_of_range("");
      },
      "sample 7 is damaged");
}

}  // namespace
}  // namespace lockstep::comm
