#include "lockstep/launch/job/cut_hosts.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cuts = std::set<std::pair<int, int>>;

const absl::Time kStart = absl::UnixEpoch();

absl::Time After(int seconds) { return kStart + absl::Seconds(seconds); }

std::vector<CutHosts::Host> Hosts(const std::vector<std::string>& agents) {
  std::vector<CutHosts::Host> hosts;
  for (const std::string& agent : agents) hosts.push_back({agent, agent + "'s"});
  return hosts;
}

bool IsThere(const std::string& /*agent*/) { return true; }

TEST(HostsToLeaveOut, IsNobodyIfAllReachEachOther) { EXPECT_THAT(HostsToLeaveOut(3, {}), IsEmpty()); }

TEST(HostsToLeaveOut, IsTheHostThatReachesFewest) {
  EXPECT_THAT(HostsToLeaveOut(3, Cuts{{0, 1}, {0, 2}}), ElementsAre(0));
  EXPECT_THAT(HostsToLeaveOut(4, Cuts{{0, 2}, {1, 2}, {2, 3}}), ElementsAre(2));
}

TEST(HostsToLeaveOut, IsTheLaterOneOfAPair) {
  EXPECT_THAT(HostsToLeaveOut(3, Cuts{{0, 1}}), ElementsAre(1));
  EXPECT_THAT(HostsToLeaveOut(3, Cuts{{1, 2}}), ElementsAre(2));
  EXPECT_THAT(HostsToLeaveOut(4, Cuts{{0, 1}, {2, 3}}), ElementsAre(1, 3));
}

TEST(HostsToLeaveOut, IsTheSmallerPart) {
  EXPECT_THAT(HostsToLeaveOut(5, Cuts{{0, 2}, {0, 3}, {0, 4}, {1, 2}, {1, 3}, {1, 4}}), ElementsAre(0, 1));
  EXPECT_THAT(HostsToLeaveOut(4, Cuts{{0, 2}, {0, 3}, {1, 2}, {1, 3}}), ElementsAre(2, 3));
}

// Against all subsets, for all cuts among four hosts: those that stay reach each other, and are as many as can.
TEST(HostsToLeaveOut, LeavesAsManyAsReachEachOther) {
  const std::vector<std::pair<int, int>> pairs = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  for (int mask = 0; mask < 64; ++mask) {
    Cuts cuts;
    for (int i = 0; i < 6; ++i) {
      if (mask >> i & 1) cuts.insert(pairs[i]);
    }
    const auto reach = [&](int hosts) {
      for (const auto& [a, b] : cuts) {
        if ((hosts >> a & 1) && (hosts >> b & 1)) return false;
      }
      return true;
    };
    int most = 0, stay = 15;
    for (int hosts = 0; hosts < 16; ++hosts) {
      if (reach(hosts)) most = std::max(most, __builtin_popcount(hosts));
    }
    for (const int host : HostsToLeaveOut(4, cuts)) stay &= ~(1 << host);
    EXPECT_TRUE(reach(stay)) << mask;
    EXPECT_EQ(__builtin_popcount(stay), most) << mask;
  }
}

TEST(CutHosts, SaysWhoIsLeftOutAndWhenItIsTriedAgain) {
  CutHosts cuts;
  cuts.Record("c", "b");
  EXPECT_TRUE(cuts.has_news());
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 2, 0, kStart), ElementsAre("c"));
  EXPECT_EQ(cuts.memory().line,
            "host c's is left out, and is tried again in 1m: it and host b's do not reach each other");
  EXPECT_TRUE(cuts.IsLeftOut("c"));
  EXPECT_EQ(cuts.next_look(), After(60));
  EXPECT_FALSE(cuts.Update(IsThere, After(59)));
  EXPECT_TRUE(cuts.Update(IsThere, After(60)));
  EXPECT_FALSE(cuts.IsLeftOut("c"));
  EXPECT_EQ(cuts.memory().line, "");
}

TEST(CutHosts, LeavesAHostOutForTwiceAsLongEachTime) {
  CutHosts cuts;
  int seconds = 0;
  for (const int minutes : {1, 2, 4, 8, 16, 16}) {
    cuts.Record("a", "b");
    EXPECT_THAT(cuts.Decide(Hosts({"a", "b"}), 1, 0, After(seconds)), ElementsAre("b"));
    EXPECT_EQ(cuts.next_look(), After(seconds + 60 * minutes));
    seconds += 60 * minutes;
    EXPECT_TRUE(cuts.Update(IsThere, After(seconds)));
  }
}

TEST(CutHosts, LeavesNobodyOutIfTooFewWouldBeThere) {
  CutHosts cuts;
  cuts.Record("a", "c");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 3, 0, kStart), IsEmpty());
  EXPECT_EQ(
      cuts.memory().line,
      "hosts a's and c's do not all reach each other, but --nnodes needs 3 nodes, so all of them are tried again");
  EXPECT_FALSE(cuts.IsLeftOut("c"));
  cuts.Record("a", "c");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 3, /*spares=*/1, kStart), ElementsAre("c"));
}

// Only one of the hosts that rank 0's host does not reach has said so at first.
TEST(CutHosts, TakesAHostBackOnceItIsKnownThatAnotherOneIsCutOff) {
  CutHosts cuts;
  cuts.Record("c", "a");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 2, 0, kStart), ElementsAre("c"));
  cuts.Record("b", "a");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b"}), 2, 0, After(20)), ElementsAre("a"));
  EXPECT_FALSE(cuts.IsLeftOut("c"));
  EXPECT_TRUE(cuts.IsLeftOut("a"));
  EXPECT_THAT(cuts.memory().line, HasSubstr("it and hosts b's and c's do not reach each other"));
  EXPECT_TRUE(cuts.Update(IsThere, After(80)));
  EXPECT_THAT(cuts.memory().cuts, IsEmpty());
}

// b and c cannot do without a, which c does not reach.
TEST(CutHosts, KeepsAHostOutWhileNobodyElseMayBeLeftOut) {
  CutHosts cuts;
  cuts.Record("a", "c");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 2, 0, kStart), ElementsAre("c"));
  cuts.Record("a", "b");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b"}), 3, 0, After(1)), IsEmpty());
  EXPECT_TRUE(cuts.IsLeftOut("c"));
  cuts.Record("a", "b");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b"}), 2, 0, After(2)), ElementsAre("a"));
  EXPECT_FALSE(cuts.IsLeftOut("c"));
}

TEST(CutHosts, ForgetsALauncherThatIsGone) {
  CutHosts cuts;
  cuts.Record("a", "c");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "c"}), 2, 0, kStart), ElementsAre("c"));
  EXPECT_TRUE(cuts.Update([](const std::string& agent) { return agent != "c"; }, After(1)));
  cuts.Record("a", "d");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b", "d"}), 2, 0, After(2)), ElementsAre("d"));
  EXPECT_EQ(cuts.memory().line,
            "host d's is left out, and is tried again in 1m: it and host a's do not reach each other");
  cuts.Record("a", "b");
  EXPECT_THAT(cuts.Decide(Hosts({"a", "b"}), 3, 0, After(3)), IsEmpty());
}

TEST(CutHosts, GoesOnFromWhatAnotherLeaderKnew) {
  CutHosts first;
  first.Record("a", "b");
  first.Decide(Hosts({"a", "b"}), 1, 0, kStart);
  CutHosts second(first.memory(), After(30));
  EXPECT_TRUE(second.IsLeftOut("b"));
  EXPECT_FALSE(second.has_news());
  EXPECT_EQ(second.next_look(), After(90));
}

}  // namespace
}  // namespace lockstep::launch
