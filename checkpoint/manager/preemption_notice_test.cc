#include "lockstep/checkpoint/manager/preemption_notice.h"

#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

using comm::InitOptions;
using comm::ProcessGroup;
using comm::testing::Process;
using comm::testing::RankProcesses;

// First: the test's process must have no threads when it forks.
absl::StatusOr<int> StepUntilPreempted(const InitOptions& options, const Process::Say& say) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto notice, PreemptionNotice::Create());
  for (int step = 0;; ++step) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice->ReceivedByAnyRank(group.get()));
    if (stop) return step;
    if (step == 10) say("training");
  }
}

TEST(PreemptionNotice, OneRanksSignalStopsAllAtOneStep) {
  InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  RankProcesses ranks(3, options, [](const InitOptions& rank_options, const Process::Say& say) {
    const absl::StatusOr<int> step = StepUntilPreempted(rank_options, say);
    say(step.ok() ? absl::StrCat("stopped at ", *step) : step.status().ToString());
    return step.ok() ? 0 : 1;
  });
  ASSERT_TRUE(ranks.AwaitAll("training"));
  ranks.Signal(1, SIGTERM);
  std::string first;
  for (int rank = 0; rank < 3; ++rank) {
    const auto line = ranks[rank].AwaitLine("stopped at ");
    ASSERT_TRUE(line) << "rank " << rank;
    if (rank == 0) first = line->text;
    EXPECT_EQ(line->text, first) << "rank " << rank;
    EXPECT_EQ(ranks[rank].Wait(), 0) << "rank " << rank;
  }
}

TEST(PreemptionNotice, NotesTheSignalsThatItWasGiven) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const auto notice = PreemptionNotice::Create({SIGTERM, SIGUSR1});
    ASSERT_TRUE(notice.ok()) << notice.status();
    EXPECT_FALSE((*notice)->Received()) << "the next notice starts afresh";
    EXPECT_FALSE(*(*notice)->ReceivedByAnyRank(nullptr));
    raise(signal);
    EXPECT_TRUE((*notice)->Received());
    EXPECT_TRUE(*(*notice)->ReceivedByAnyRank(nullptr));
  }
}

int noted = 0;

TEST(PreemptionNotice, PutsTheHandlersBack) {
  struct sigaction own = {};
  own.sa_handler = [](int) { ++noted; };
  ASSERT_EQ(sigaction(SIGUSR2, &own, nullptr), 0);
  { const auto notice = PreemptionNotice::Create({SIGUSR2, SIGUSR2}); }
  raise(SIGUSR2);
  EXPECT_EQ(noted, 1);
}

TEST(PreemptionNotice, IsOneAtATime) {
  {
    const auto first = PreemptionNotice::Create();
    EXPECT_EQ(PreemptionNotice::Create().status(),
              absl::FailedPreconditionError("this process has a PreemptionNotice already"));
  }
  EXPECT_TRUE(PreemptionNotice::Create().ok());
}

TEST(PreemptionNotice, RefusesWhatCannotBeHandledAndLeavesNothingBehind) {
  const auto notice = PreemptionNotice::Create({SIGUSR1, SIGKILL});
  EXPECT_EQ(notice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(notice.status().message(), "handle signal 9: Invalid argument");
  EXPECT_TRUE(PreemptionNotice::Create().ok());
  struct sigaction now;
  sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(PreemptionNotice, AFailedGroupIsAnError) {
  const auto results = comm::testing::RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) return absl::OkStatus();
    // Only rank 0 creates it: a process can have one.
    LOCKSTEP_ASSIGN_OR_RETURN(const auto notice, PreemptionNotice::Create());
    return notice->ReceivedByAnyRank(&group).status();
  });
  EXPECT_THAT(std::string(results[0].message()), ::testing::HasSubstr("rank 1 left the group"));
}

}  // namespace
}  // namespace lockstep::checkpoint
