#include "lockstep/ddp/slowest_rank.h"

#include <torch/torch.h>

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/testing/thread_backend.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

// With a buffer: rank 0's is what forward waits for.
struct SleeperImpl : torch::nn::Module {
  SleeperImpl() {
    weight = register_parameter("weight", torch::ones({2}));
    register_buffer("buffer", torch::zeros({1}));
  }
  torch::Tensor forward(absl::Duration sleep) {
    absl::SleepFor(sleep);
    return weight.sum();
  }
  torch::Tensor weight;
};
TORCH_MODULE(Sleeper);

// Returns the ranks' findings after `steps` steps in each of which rank r sleeps for sleeps[r].
std::vector<SlowestRank> Found(const std::vector<absl::Duration>& sleeps, int steps, int last_steps) {
  std::vector<SlowestRank> found(sleeps.size());
  EXPECT_EQ(RunRanksOk(static_cast<int>(sleeps.size()),
                       [&](ProcessGroup& group) {
                         auto ddp = *Wrap(Sleeper(), &group);
                         for (int step = 0; step < steps; ++step) ddp(sleeps[group.rank()]).backward();
                         auto slowest = FindSlowestRank(ddp, last_steps);
                         ASSERT_TRUE(slowest.ok()) << slowest.status();
                         found[group.rank()] = *slowest;
                       }),
            absl::OkStatus());
  return found;
}

TEST(FindSlowestRank, NamesTheRankThatTheOthersWaitForOnAllOfThem) {
  for (const int sleeper : {0, 2}) {
    std::vector<absl::Duration> sleeps(3, absl::Milliseconds(10));
    sleeps[sleeper] = absl::Milliseconds(120);
    for (const SlowestRank& slowest : Found(sleeps, /*steps=*/4, /*last_steps=*/3)) {
      EXPECT_EQ(slowest.rank, sleeper);
      EXPECT_THAT(slowest.name, StartsWith(absl::StrCat("rank ", sleeper, " (host ")));
      EXPECT_EQ(slowest.steps, 3);
      EXPECT_EQ(slowest.ranks, 3);
      EXPECT_GE(slowest.mean, absl::Milliseconds(120));
      // The others' waits for the sleeper, 110 ms a step, are not counted as theirs.
      EXPECT_GE(slowest.median, absl::Milliseconds(10));
      EXPECT_LT(slowest.median, absl::Milliseconds(80));
      EXPECT_GT(slowest.Lag(), 0.5);
    }
  }
}

TEST(FindSlowestRank, CountsTheLastStepsOnly) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Sleeper(), &group);
                         // Rank 0 is slow at first, rank 1 later.
                         for (const int slow : {0, 1, 1}) {
                           const bool sleeps = group.rank() == slow;
                           ddp(absl::Milliseconds(sleeps ? (slow == 0 ? 400 : 100) : 0)).backward();
                         }
                         EXPECT_EQ(FindSlowestRank(ddp, 2)->rank, 1);
                         EXPECT_EQ(FindSlowestRank(ddp, 100)->rank, 0);
                         EXPECT_EQ(FindSlowestRank(ddp, 100)->steps, 3);
                       }),
            absl::OkStatus());
}

TEST(FindSlowestRank, IsDescribedInOneLine) {
  SlowestRank slowest;
  slowest.name = "rank 1 (host a, pid 123)";
  slowest.mean = absl::Microseconds(84100);
  slowest.median = absl::Microseconds(64200);
  slowest.ranks = 4;
  slowest.steps = 20;
  EXPECT_EQ(
      Describe(slowest),
      "rank 1 (host a, pid 123) is the slowest of 4: 84.1 ms a step, 31 % more than the median 64.2 ms (20 steps)");
}

TEST(FindSlowestRank, SaysWhyItCannotTell) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Sleeper(), &group);
                         const std::string who = absl::StrCat("rank ", group.rank(), ": FindSlowestRank: ");
                         EXPECT_EQ(FindSlowestRank(ddp, 0).status(),
                                   absl::InvalidArgumentError(
                                       absl::StrCat(who, "last_steps is 0, expected a positive number")));
                         const absl::Status none = FindSlowestRank(ddp, 10).status();
                         EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
                         EXPECT_THAT(std::string(none.message()),
                                     MatchesRegex(who + "rank 0 \\(host .*\\) has not averaged a step yet"));
                       }),
            absl::OkStatus());
}

TEST(FindSlowestRank, AsksNobodyWherePythonRanksMayBeInTheGroup) {
  comm::testing::ThreadHub hub(1, absl::Seconds(10));
  auto group = ProcessGroup::FromC10d({{c10::DeviceType::CPU, comm::testing::MakeThreadBackend(hub, 0)}},
                                      c10::make_intrusive<c10d::HashStore>());
  ASSERT_TRUE(group.ok()) << group.status();
  auto ddp = *Wrap(Sleeper(), group->get());
  ddp(absl::ZeroDuration()).backward();
  const absl::Status refused = FindSlowestRank(ddp, 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("may have ranks that are not Lockstep's"));
}

TEST(FindSlowestRank, ReturnsTheFailureOfAGroupThatHasFailed) {
  const auto results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    auto ddp = *Wrap(Sleeper(), &group);
    ddp(absl::ZeroDuration()).backward();
    group.Abort(absl::DataLossError("sample 7 is damaged"));
    return FindSlowestRank(ddp, 1).status();
  });
  EXPECT_THAT(results[0].message(), HasSubstr("rank 0: FindSlowestRank: "));
  EXPECT_THAT(results[0].message(), HasSubstr("sample 7 is damaged"));
}

TEST(FindSlowestRank, ReturnsTheFailureOfAGroupThatFailsMeanwhile) {
  const absl::Time start = absl::Now();
  const auto results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    auto ddp = *Wrap(Sleeper(), &group);
    ddp(absl::ZeroDuration()).backward();
    if (group.rank() == 1) return absl::OkStatus();  // the other waits in vain for what it would have said
    std::thread watch([&] {
      absl::SleepFor(absl::Milliseconds(50));
      group.Abort(absl::UnavailableError("rank 1 died"));
    });
    const absl::Status status = FindSlowestRank(ddp, 1).status();
    watch.join();
    return status;
  });
  EXPECT_EQ(results[0], absl::UnavailableError("rank 0: FindSlowestRank: asking for the ranks' times: rank 1 died"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

}  // namespace
}  // namespace lockstep::ddp
