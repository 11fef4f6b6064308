// The collector's requests to the store, and their times. Ranks are threads over an in-process store.

#include "lockstep/comm/rendezvous/collector.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/rendezvous/board.h"
#include "lockstep/comm/rendezvous/meeting.h"
#include "lockstep/comm/rendezvous/roster.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;

// One rank's way to a store, which counts how often it looks for a Python rank.
class CountingStore : public c10d::PrefixStore {
 public:
  explicit CountingStore(c10::intrusive_ptr<c10d::Store> store) : PrefixStore("of all", std::move(store)) {}
  bool check(const std::vector<std::string>& keys) override {
    if (keys[0].find("default_pg") == 0) ++python_looks;
    return PrefixStore::check(keys);
  }
  std::atomic<int> python_looks{0};
};

c10::intrusive_ptr<CountingStore> NewStore() {
  return c10::make_intrusive<CountingStore>(c10::make_intrusive<c10d::HashStore>());
}

void Announce(const c10::intrusive_ptr<CountingStore>& store, const RankIdentity& identity) {
  store->set(MemberKey(identity.rank), EncodeMember({"token", identity, ""}));
}

TEST(Collector, LooksForPythonRanksOnlyIfNoLockstepRankIsNew) {
  const auto store = NewStore();
  Board board(store);
  Collector collector(&board, IdentityOfThisProcess(0), 4);
  store->set(PythonKey(3), "an address of Gloo");
  for (const int rank : {0, 1}) {
    Announce(store, IdentityOfThisProcess(rank));
    EXPECT_EQ(collector.Look(), absl::OkStatus());
    EXPECT_EQ(store->python_looks, 0);
  }
  EXPECT_THAT(collector.missing(), ElementsAre(2, 3));
  EXPECT_EQ(collector.Look(), absl::OkStatus());
  EXPECT_EQ(store->python_looks, 2);  // ranks 2 and 3
  EXPECT_THAT(collector.missing(), ElementsAre(2));
  Announce(store, IdentityOfThisProcess(2));
  EXPECT_EQ(collector.Look(), absl::OkStatus());
  EXPECT_TRUE(collector.complete());
  EXPECT_EQ(store->python_looks, 2);
  EXPECT_FALSE(collector.roster()[3].has_value());
}

TEST(Collector, IsQuietIfNobodyHasWrittenSinceTheLastTime) {
  const auto store = NewStore();
  Board board(store);
  Collector collector(&board, IdentityOfThisProcess(0), 3);
  EXPECT_FALSE(collector.IsQuiet());
  EXPECT_TRUE(collector.IsQuiet());
  Announce(store, IdentityOfThisProcess(1));
  EXPECT_FALSE(collector.IsQuiet());
  EXPECT_TRUE(collector.IsQuiet());
}

TEST(Collector, NamesARankWhoseProcessHasGone) {
  const auto store = NewStore();
  Board board(store);
  Collector collector(&board, IdentityOfThisProcess(0), 3);
  RankIdentity gone = IdentityOfThisProcess(1);
  gone.start_time += 1;  // another process than the one that has the pid now
  Announce(store, gone);
  const absl::Status status = collector.Look();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(NameOf(gone) + " died while the ranks met"));
  EXPECT_EQ(collector.CheckAlive(), status);
}

// How often each of four ranks looks for Python ranks. The last one comes 700 ms after the others. If `someone_comes`,
// a new key comes every 20 ms.
std::vector<int> CountLooks(bool someone_comes) {
  const c10::intrusive_ptr<c10d::Store> shared = c10::make_intrusive<c10d::HashStore>();
  std::vector<c10::intrusive_ptr<CountingStore>> stores;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    stores.push_back(c10::make_intrusive<CountingStore>(shared));
    ranks.emplace_back([rank, store = stores[rank]] {
      if (rank == 3) absl::SleepFor(absl::Milliseconds(700));
      EXPECT_TRUE(MeetAllRanks(store, rank, 4, "", absl::Now() + absl::Seconds(20)).ok());
    });
  }
  for (int i = 0; !shared->check({"of all/" + MemberKey(3)}); ++i) {
    if (someone_comes) shared->set(absl::StrCat("key ", i), "");
    absl::SleepFor(absl::Milliseconds(20));
  }
  for (std::thread& rank : ranks) rank.join();
  std::vector<int> looks;
  for (const auto& store : stores) looks.push_back(store->python_looks);
  return looks;
}

TEST(MeetAllRanks, LetsOneRankLookForPythonRanksIfNobodyComes) {
  std::vector<int> looks = CountLooks(/*someone_comes=*/false);
  std::sort(looks.begin(), looks.end());
  EXPECT_THAT(looks, ElementsAre(0, 0, 0, ::testing::Ge(1)));
}

TEST(MeetAllRanks, LooksForNoPythonRankWhileSomebodyComes) {
  EXPECT_THAT(CountLooks(/*someone_comes=*/true), ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace lockstep::comm
