#include "lockstep/comm/testing/failure_conformance.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/process.h"

namespace lockstep::comm::testing {
namespace {

using ::testing::HasSubstr;
using Group = std::unique_ptr<ProcessGroup>;
using Body = std::function<void(Group& group, const Process::Say& say)>;

constexpr absl::Duration kTimeout = absl::Seconds(3);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendFailures);

// Processes that are the ranks of one group. Each says "met" once all have met.
class Ranks {
 public:
  Ranks(int size, InitOptions options, const Body& body) {
    options.init_method = absl::StrCat("file://", folder_.path(), "/store");
    options.world_size = size;
    for (int rank = 0; rank < size; ++rank) {
      options.rank = rank;
      processes_.emplace_back([options, &body](const Process::Say& say) {
        auto group = InitProcessGroup(options);
        if (!group.ok()) say(absl::StrCat("failed ", group.status().message()));
        if (!group.ok()) return 1;
        say("met");
        body(*group, say);
        return 0;
      });
    }
    for (Process& process : processes_) EXPECT_TRUE(process.AwaitLine("met")) << "a rank did not meet the others";
  }

  Process& operator[](int rank) { return processes_[rank]; }

  // What `rank` said about its failure, at most `limit` after `event`.
  std::string Failure(int rank, absl::Duration event, absl::Duration limit) {
    const auto line = processes_[rank].AwaitLine("failed ");
    if (!line) return "rank said nothing";
    EXPECT_LT(line->time - event, limit) << "rank " << rank << ": " << line->text;
    return line->text;
  }

  // It said that later calls and the destructor were quick, and then ended at once.
  void ExpectQuickEnd(int rank) {
    const auto line = processes_[rank].AwaitLine("destroyed");
    ASSERT_TRUE(line) << "rank " << rank << " did not end its group";
    EXPECT_EQ(line->text, "destroyed quickly, and said the same again");
    EXPECT_EQ(processes_[rank].Wait(), 0);
    EXPECT_LT(processes_[rank].end_time() - line->time, absl::Seconds(2)) << "rank " << rank;
  }

 private:
  TemporaryFolder folder_;
  std::vector<Process> processes_;
};

InitOptions Over(const FailureCase& backend, Debug debug = Debug::kOff) {
  InitOptions options;
  options.backend = backend.backend;
  options.timeout = kTimeout;
  options.debug = debug;
  return options;
}

// Says `status`, then whether the group keeps to it and lets go at once.
void SayFailure(Group& group, const absl::Status& status, const Process::Say& say) {
  say(absl::StrCat("failed ", absl::StatusCodeToString(status.code()), " ", status.message()));
  const absl::Status cause = group->failure();
  const absl::Time start = absl::Now();
  const bool same = !cause.ok() && group->Barrier() == cause && group->AllReduce(at::ones({5})) == cause;
  group.reset();
  const bool quick = absl::Now() - start < absl::Seconds(1);
  say(absl::StrCat("destroyed ", quick ? "quickly" : "slowly", ", and said ", same ? "the same" : "another thing",
                   " again"));
}

// All-reduces that begin well, and then wait for rank 2, which says "gone" and does `instead`.
Body WhileRank2(const std::function<void()>& instead) {
  return [instead](Group& group, const Process::Say& say) {
    const at::Tensor tensor = at::ones({1000});
    for (int i = 0; i < 3; ++i) {
      if (!group->AllReduce(tensor).ok()) say("failed too early");
    }
    if (group->rank() == 2) {
      say("gone");
      instead();
      return;
    }
    SayFailure(group, group->AllReduce(tensor), say);
  };
}

void Sleep() {
  while (true) pause();
}

TEST_P(BackendFailures, AKilledRankIsNamedWithItsSignalWithin2Seconds) {
  Ranks ranks(3, Over(GetParam()), WhileRank2(Sleep));
  ASSERT_TRUE(ranks[2].AwaitLine("gone"));
  const absl::Duration killed = Process::Now();
  ranks[2].Signal(SIGKILL);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ranks.Failure(rank, killed, absl::Seconds(2));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("failed UNAVAILABLE rank ", rank,
                                             ": all_reduce #3 of Float [1000] on cpu: rank 2 (host ")));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("pid ", ranks[2].pid(), ") died: signal 9 (Killed)")));
    ranks.ExpectQuickEnd(rank);
  }
}

TEST_P(BackendFailures, AStoppedRankIsNamedWithTheCallAtTheTimeout) {
  Ranks ranks(3, Over(GetParam()), WhileRank2([] { raise(SIGSTOP); }));
  ASSERT_TRUE(ranks[2].AwaitLine("gone"));
  const absl::Duration stopped = Process::Now();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ranks.Failure(rank, stopped, kTimeout + absl::Seconds(2));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("failed DEADLINE_EXCEEDED rank ", rank, ": all_reduce #3")));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("pid ", ranks[2].pid())));
    ranks.ExpectQuickEnd(rank);
  }
}

TEST_P(BackendFailures, ARankThatExitsBeforeTheFirstCallIsNamed) {
  Ranks ranks(3, Over(GetParam()), [](Group& group, const Process::Say& say) {
    if (group->rank() == 2) _exit(3);
    SayFailure(group, group->AllReduce(at::ones({2})), say);
  });
  const absl::Duration met = Process::Now();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ranks.Failure(rank, met, absl::Seconds(2));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("pid ", ranks[2].pid(), ") exited with code 3")));
    ranks.ExpectQuickEnd(rank);
  }
}

TEST_P(BackendFailures, ARankThatLeavesInPeaceIsNamedToThoseThatGoOn) {
  Ranks ranks(3, Over(GetParam()), [](Group& group, const Process::Say& say) {
    if (!group->AllReduce(at::ones({2})).ok()) say("failed too early");
    if (group->rank() < 2) SayFailure(group, group->AllReduce(at::ones({2})), say);
  });
  const absl::Duration met = Process::Now();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ranks.Failure(rank, met, absl::Seconds(4));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("pid ", ranks[2].pid(), ") left the group after all_reduce #0")));
    ranks.ExpectQuickEnd(rank);
  }
}

TEST_P(BackendFailures, InDetailEveryRankHearsWhatWasCalledInstead) {
  Ranks ranks(2, Over(GetParam(), Debug::kDetail), [](Group& group, const Process::Say& say) {
    if (!group->Barrier().ok()) say("failed too early");
    const absl::Status status = group->rank() == 0 ? group->AllReduce(at::ones({2, 3}), ReduceOp::kMax)
                                                   : group->Broadcast(at::ones({7}, at::kLong), 1);
    SayFailure(group, status, say);
  });
  const absl::Duration met = Process::Now();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ranks.Failure(rank, met, absl::Seconds(2));
    EXPECT_THAT(text, HasSubstr("failed INVALID_ARGUMENT"));
    EXPECT_THAT(text, HasSubstr("all_reduce of Float [2, 3] on cpu, op max"));
    EXPECT_THAT(text, HasSubstr("broadcast of Long [7] on cpu, root 1"));
    EXPECT_THAT(text, HasSubstr("#1"));
    ranks.ExpectQuickEnd(rank);
  }
}

TEST_P(BackendFailures, AnExceptionReachesTheOthersAsItsMessage) {
  Ranks uncaught(3, Over(GetParam()), WhileRank2([] {
                   // On a thread of its own: the test's framework would catch it here.
                   std::thread([] { throw std::runtime_error("no more ink"); }).join();
                 }));
  const absl::Duration met = Process::Now();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(uncaught.Failure(rank, met, absl::Seconds(4)), HasSubstr("no more ink"));
    uncaught.ExpectQuickEnd(rank);
  }
  EXPECT_EQ(WTERMSIG(uncaught[2].Wait()), SIGABRT);
}

TEST_P(BackendFailures, AbortReachesTheOthersAsItsMessage) {
  Ranks ranks(2, Over(GetParam()), [](Group& group, const Process::Say& say) {
    if (group->rank() == 1) group->Abort(absl::ResourceExhaustedError("disk full"));
    SayFailure(group, group->AllReduce(at::ones({2})), say);
  });
  const absl::Duration met = Process::Now();
  EXPECT_THAT(ranks.Failure(0, met, absl::Seconds(2)), HasSubstr("failed: disk full"));
  EXPECT_EQ(ranks.Failure(1, met, absl::Seconds(2)), "failed RESOURCE_EXHAUSTED disk full");
  for (int rank = 0; rank < 2; ++rank) ranks.ExpectQuickEnd(rank);
}

}  // namespace
}  // namespace lockstep::comm::testing
