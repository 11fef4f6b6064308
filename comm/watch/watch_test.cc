// The watch among threads of one process; deaths are in watch_process_test.cc, strangers in watch_strangers_test.cc.

#include "lockstep/comm/watch/watch.h"

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/watch/testing/watches.h"

namespace lockstep::comm {
namespace {

using testing::ConnectThreads;
using testing::MapStore;
using testing::OptionsOver;
using testing::ThreadRanks;
using Watches = std::vector<std::unique_ptr<Watch>>;

std::string Name(int rank) { return NameOf(IdentityOfThisProcess(rank)); }

// Returns the results of `call` on each rank, all at one time.
std::vector<absl::Status> OnAll(const Watches& watches, const std::function<absl::Status(int, Watch&)>& call) {
  std::vector<absl::Status> statuses(watches.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < watches.size(); ++rank) {
    threads.emplace_back([&, rank] {
      // A status counts its references in code that ThreadSanitizer does not see: each thread's is its own.
      const absl::Status status = call(static_cast<int>(rank), *watches[rank]);
      statuses[rank] = absl::Status(status.code(), std::string(status.message()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status AgreeOn(Watch& watch, int64_t sequence, const std::string& fingerprint,
                     absl::Duration patience = absl::Seconds(20)) {
  return watch.Agree(sequence, fingerprint, absl::Now() + patience);
}

// The group's first cause at `watch`, once it is there.
absl::Status AwaitFailure(const Watch& watch) {
  for (int i = 0; i < 4000 && watch.failure().ok(); ++i) absl::SleepFor(absl::Milliseconds(5));
  return watch.failure();
}

// On one host they meet at a Unix socket, on several by TCP.
class WatchAmongThreads : public ::testing::TestWithParam<testing::Layout> {
 protected:
  Watches Connect(int size) const { return ConnectThreads(size, GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Layouts, WatchAmongThreads, ::testing::ValuesIn(testing::kLayouts),
                         [](const auto& param) { return testing::NameOf(param.param); });

TEST_P(WatchAmongThreads, ManyRanksConnectAgreeAndLeave) {
  const Watches watches = Connect(64);
  for (int64_t sequence = 0; sequence < 20; ++sequence) {
    for (const absl::Status& status : OnAll(watches, [&](int, Watch& watch) {
           watch.Begin(sequence, "all_reduce");
           const absl::Status agreed = AgreeOn(watch, sequence, "float [3]");
           watch.End(sequence);
           return agreed;
         })) {
      ASSERT_EQ(status, absl::OkStatus());
    }
  }
  for (const auto& watch : watches) EXPECT_EQ(watch->failure(), absl::OkStatus());
}

TEST_P(WatchAmongThreads, AMismatchIsAnErrorOnEveryRankWithBothFingerprints) {
  const Watches watches = Connect(3);
  for (const absl::Status& status :
       OnAll(watches, [](int rank, Watch&watch) { return AgreeOn(watch, 5, rank == 1 ? "barrier" : "all_reduce"); })) {
    EXPECT_EQ(status, absl::InvalidArgumentError("call #5 differs: ranks 0, 2 have all_reduce; rank 1 has barrier"));
  }
  for (const auto& watch : watches) EXPECT_EQ(AgreeOn(*watch, 6, "x").code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(WatchAmongThreads, AnAbortReachesAllOthersAsItsMessage) {
  const Watches watches = Connect(3);
  watches[1]->Abort(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(AwaitFailure(*watches[1]), absl::ResourceExhaustedError("no memory"));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(AwaitFailure(*watches[rank]), absl::AbortedError(Name(1) + " failed: no memory"));
  }
}

TEST_P(WatchAmongThreads, AnErrorThatNobodyExplainsIsTheFirstOnesOnEveryRank) {
  const Watches watches = Connect(3);
  const absl::Status own = watches[2]->Explain(absl::InternalError("odd"));
  EXPECT_EQ(own, absl::InternalError("odd"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(watches[rank]->Explain(absl::InternalError("later")), absl::AbortedError(Name(2) + " failed: odd"));
  }
}

TEST_P(WatchAmongThreads, ATimeoutNamesThoseThatAreLate) {
  const Watches watches = Connect(4);
  watches[3]->Begin(6, "broadcast");
  watches[1]->Begin(6, "broadcast");
  watches[1]->End(6);
  for (const int rank : {0, 2}) watches[rank]->Begin(7, "all_reduce");
  const auto statuses = OnAll(watches, [](int rank, Watch& watch) {
    if (rank == 1 || rank == 3) return AwaitFailure(watch);
    return watch.ExplainTimeout(7, "all_reduce", absl::Seconds(3));
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status,
              absl::DeadlineExceededError(absl::StrCat("all_reduce #7 timed out after 3s: ", Name(1),
                                                       " has not begun it: its last call was broadcast #6; ", Name(3),
                                                       " has not begun it: it is still in broadcast #6")));
  }
}

TEST_P(WatchAmongThreads, AgreeEndsAtItsDeadlineNamingThoseThatAreLate) {
  const Watches watches = Connect(2);
  watches[0]->Begin(2, "barrier");
  EXPECT_EQ(AgreeOn(*watches[0], 2, "barrier", absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(AwaitFailure(*watches[1]), watches[0]->failure());
  EXPECT_EQ(std::string(watches[1]->failure().message()).substr(0, 20), "barrier #2 timed out");
}

TEST_P(WatchAmongThreads, ARankThatLeavesFailsACallThatNeedsIt) {
  for (const int leaver : {0, 1, 2}) {
    Watches watches = Connect(3);
    for (const auto& watch : watches) watch->Begin(12, "all_reduce");
    watches[leaver].reset();
    const int before = (leaver + 1) % 3, after = (leaver + 2) % 3;
    const std::string text = Name(leaver) + " left the group after all_reduce #12";
    EXPECT_EQ(watches[before]->failure(), absl::OkStatus());
    watches[before]->Begin(13, "barrier");
    EXPECT_EQ(AwaitFailure(*watches[before]), absl::UnavailableError(text));
    watches[after]->Begin(13, "barrier");
    EXPECT_EQ(watches[after]->Explain(absl::InternalError("closed")), absl::UnavailableError(text));
    EXPECT_EQ(AgreeOn(*watches[after], 13, "x"), absl::UnavailableError(text));
  }
}

TEST_P(WatchAmongThreads, ARankThatLeavesBeforeItsFirstCallFailsAgree) {
  for (const int leaver : {0, 2}) {
    Watches watches = Connect(3);
    watches[leaver].reset();
    EXPECT_EQ(AgreeOn(*watches[1], 0, "x"),
              absl::UnavailableError(Name(leaver) + " left the group before its first call"));
  }
}

TEST_P(WatchAmongThreads, LeavingTogetherIsNoErrorAndQuick) {
  Watches watches = Connect(8);
  const absl::Time start = absl::Now();
  for (const auto& watch : watches) watch->Begin(3, "barrier");
  for (size_t i = watches.size(); i-- > 1;) {
    watches[i].reset();
    EXPECT_EQ(watches[0]->failure(), absl::OkStatus());
  }
  watches.clear();
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
}

TEST_P(WatchAmongThreads, OnFailureIsCalledOnceOnEveryRankAlsoOnTheOneThatFailed) {
  MapStore store;
  std::atomic<int> calls{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      WatchOptions options = OptionsOver(&store, rank, ThreadRanks(3, GetParam().one_host));
      options.hub = GetParam().hub;
      std::atomic<int> own_calls{0};
      options.on_failure = [&](const absl::Status& cause) {
        own_calls += cause.ok() ? 100 : 1;
        ++calls;
      };
      const auto watch = Watch::Create(std::move(options)).value();
      if (rank == 0) watch->Abort(absl::InternalError("odd"));
      while (calls < 3) absl::SleepFor(absl::Milliseconds(1));
      EXPECT_EQ(own_calls, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Watch, OneRankAlone) {
  const Watches watches = ConnectThreads(1);
  EXPECT_EQ(AgreeOn(*watches[0], 1, "x"), absl::OkStatus());
  const absl::Time start = absl::Now();
  EXPECT_EQ(watches[0]->Explain(absl::InternalError("odd")), absl::InternalError("odd"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  EXPECT_EQ(AgreeOn(*watches[0], 2, "x"), absl::InternalError("odd"));
}

TEST(Watch, ARankThatNeverConnectsIsNamedOnAllOthersByTheDeadline) {
  MapStore store;
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(Watch::Create(OptionsOver(&store, rank, ThreadRanks(3), absl::Milliseconds(300))).status(),
                absl::DeadlineExceededError("these ranks did not connect: " + Name(1)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST(Watch, AnInterruptionEndsTheConnecting) {
  MapStore store;
  const auto is_interrupted = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      WatchOptions options = OptionsOver(&store, rank, ThreadRanks(3), absl::Minutes(5));
      options.interruption = [is_interrupted] {
        return *is_interrupted ? absl::CancelledError("rank 1 is dead") : absl::OkStatus();
      };
      EXPECT_EQ(Watch::Create(std::move(options)).status(), absl::CancelledError("rank 1 is dead"));
    });
  }
  absl::SleepFor(absl::Milliseconds(200));
  *is_interrupted = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST(Watch, ARank0ThatNeverComesIsNamed) {
  MapStore store;
  EXPECT_EQ(Watch::Create(OptionsOver(&store, 1, ThreadRanks(2), absl::Milliseconds(300))).status(),
            absl::DeadlineExceededError("these ranks did not connect: " + Name(0)));
}

TEST(Watch, ARankOutsideTheGroupIsRefused) {
  MapStore store;
  EXPECT_EQ(Watch::Create(OptionsOver(&store, 2, ThreadRanks(2))).status(),
            absl::InvalidArgumentError("rank 2 is not a rank of a group of 2"));
}

TEST(Watch, AHubOutsideTheGroupIsRefused) {
  MapStore store;
  WatchOptions options = OptionsOver(&store, 1, ThreadRanks(2));
  options.hub = 2;
  EXPECT_EQ(Watch::Create(std::move(options)).status(),
            absl::InvalidArgumentError("the hub 2 is not a rank of a group of 2"));
}

// The ranks that wait, the one that is late, and the hub all hear of it, several times. Nobody fails.
TEST_P(WatchAmongThreads, ACallThatLastsLongIsExplainedOnAllRanks) {
  std::array<std::mutex, 3> mutexes;
  std::array<std::vector<Stall>, 3> stalls;
  const Watches watches = ConnectThreads(3, GetParam(), [&](int rank, WatchOptions* options) {
    options->stall_after = absl::Milliseconds(300);
    options->on_stall = [&mutexes, &stalls, rank](const Stall& stall) {
      const std::lock_guard<std::mutex> lock(mutexes[rank]);
      stalls[rank].push_back(stall);
    };
  });
  const auto heard = [&](int rank) {
    const std::lock_guard<std::mutex> lock(mutexes[rank]);
    return stalls[rank];
  };
  for (const auto& watch : watches) {
    watch->Begin(6, "broadcast");
    watch->End(6);
  }
  absl::SleepFor(absl::Milliseconds(500));  // between calls
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(heard(rank).empty());
  for (const int rank : {0, 2}) watches[rank]->Begin(7, "all_reduce");
  for (int i = 0; i < 4000 && (heard(0).size() < 3 || heard(1).size() < 3 || heard(2).size() < 3); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_GE(heard(rank).size(), 3);
    const Stall stall = heard(rank)[0];
    EXPECT_EQ(stall.text, absl::StrCat("all_reduce #7 has lasted 0: ", Name(1),
                                       " has not begun it: its last call was broadcast #6"));
    EXPECT_EQ(stall.rank, 1);
    EXPECT_GE(stall.lasted, absl::Milliseconds(300));
    EXPECT_LT(stall.lasted, heard(rank).back().lasted);
    EXPECT_TRUE(watches[rank]->failure().ok());
  }
}

}  // namespace
}  // namespace lockstep::comm
