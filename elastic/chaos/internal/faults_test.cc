#include "lockstep/elastic/chaos/internal/faults.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/elastic/chaos/internal/summary.h"

namespace lockstep::elastic::chaos::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Fault> Faults(uint64_t seed, int number, const std::vector<FaultKind>& kinds = AllFaultKinds()) {
  FaultSchedule schedule(seed, kinds, absl::Seconds(1));
  std::vector<Fault> faults;
  for (int i = 0; i < number; ++i) faults.push_back(schedule.Next());
  return faults;
}

bool Contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string Text(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    text += FaultName(fault.kind) + " " + std::to_string(fault.choice) + " " + absl::FormatDuration(fault.delay) + " " +
            absl::FormatDuration(fault.pause) + "\n";
  }
  return text;
}

TEST(FaultSchedule, IsTheSameForTheSameSeed) {
  EXPECT_EQ(Text(Faults(7, 200)), Text(Faults(7, 200)));
  EXPECT_NE(Text(Faults(7, 200)), Text(Faults(8, 200)));
}

// The first faults of seed 1 with one host, as they were when this test was written: a seed in a report must say the
// same later.
TEST(FaultSchedule, IsTheSameOnEveryMachine) {
  std::vector<FaultKind> of_ranks;
  for (const FaultKind kind : AllFaultKinds()) {
    if (HostsNeeded(kind) == 0 && !IsLong(kind)) of_ranks.push_back(kind);
  }
  std::vector<std::string> names;
  for (const Fault& fault : Faults(1, 3, of_ranks)) names.push_back(FaultName(fault.kind));
  EXPECT_THAT(names, ElementsAre("SIGSTOP while another rank dies", "SIGKILL", "SIGKILL of rank 0"));
}

TEST(FaultSchedule, HasEachKindOnceInARound) {
  const size_t kinds = AllFaultKinds().size();
  const std::vector<Fault> faults = Faults(3, static_cast<int>(10 * kinds));
  for (size_t begin = 0; begin < faults.size(); begin += kinds) {
    std::set<FaultKind> round;
    for (size_t i = begin; i < begin + kinds; ++i) round.insert(faults[i].kind);
    EXPECT_EQ(round.size(), kinds);
  }
}

TEST(FaultSchedule, HasOnlyTheKindsThatItIsGiven) {
  for (const Fault& fault : Faults(3, 50, {FaultKind::kKill, FaultKind::kExit0})) {
    EXPECT_TRUE(fault.kind == FaultKind::kKill || fault.kind == FaultKind::kExit0);
  }
}

TEST(FaultSchedule, ContinuesAStoppedRankBeforeOrAfterItMustHaveLeft) {
  for (const Fault& fault : Faults(5, 2000)) {
    if (fault.kind == FaultKind::kStop || fault.kind == FaultKind::kStopAndKill) {
      EXPECT_LT(fault.delay, absl::Milliseconds(501));
      EXPECT_GE(fault.delay, absl::Milliseconds(10));
    } else if (fault.kind == FaultKind::kStopTooLong) {
      EXPECT_GE(fault.delay, absl::Milliseconds(1200));
      EXPECT_LE(fault.delay, absl::Milliseconds(1500));
    } else {
      EXPECT_LE(fault.delay, absl::Milliseconds(30));
    }
  }
}

TEST(FaultSchedule, StartsHostsAgainAtOnceOrWithinThreeSeconds) {
  int at_once = 0, later = 0;
  for (const Fault& fault : Faults(5, 2000)) {
    EXPECT_LE(fault.pause, absl::Seconds(3));
    if (HostsNeeded(fault.kind) == 0) {
      EXPECT_EQ(fault.pause, absl::ZeroDuration());
    } else {
      ++(fault.pause == absl::ZeroDuration() ? at_once : later);
    }
  }
  EXPECT_GT(at_once, 100);
  EXPECT_GT(later, at_once);
}

TEST(FaultVictims, AreDifferentRanksAndNeverAll) {
  for (const Fault& fault : Faults(9, 2000)) {
    if (HostsNeeded(fault.kind) > 0) continue;
    for (int ranks = RanksNeeded(fault.kind); ranks <= 6; ++ranks) {
      const std::vector<int> victims = Victims(fault, ranks);
      const std::set<int> different(victims.begin(), victims.end());
      EXPECT_EQ(different.size(), victims.size());
      EXPECT_GE(victims.size(), 1);
      EXPECT_LT(victims.size(), ranks) << FaultName(fault.kind);
      EXPECT_GE(*different.begin(), 0);
      EXPECT_LT(*different.rbegin(), ranks);
    }
  }
}

TEST(FaultCuts, AreEachPathAndEachPairOfThreeHosts) {
  std::map<FaultKind, std::set<std::vector<std::pair<int, int>>>> cuts;
  for (const Fault& fault : Faults(2, 1000, {FaultKind::kCutPath, FaultKind::kCutPair, FaultKind::kCutHost})) {
    cuts[fault.kind].insert(CutsOf(fault, 3));
    EXPECT_TRUE(IsCut(fault.kind));
  }
  EXPECT_EQ(cuts[FaultKind::kCutPath].size(), 6u);
  EXPECT_EQ(cuts[FaultKind::kCutPath].count({{1, 2}}), 1u);
  EXPECT_EQ(cuts[FaultKind::kCutPair].size(), 6u);
  EXPECT_EQ(cuts[FaultKind::kCutPair].count({{2, 0}, {0, 2}}), 1u);
  EXPECT_EQ(cuts[FaultKind::kCutHost].size(), 3u);
  EXPECT_EQ(cuts[FaultKind::kCutHost].count({{1, 0}, {0, 1}, {1, 2}, {2, 1}}), 1u);
}

TEST(FaultVictims, AreEveryRankEquallyOften) {
  std::map<int, int> hit;
  for (const Fault& fault : Faults(2, 4000, {FaultKind::kKill})) ++hit[Victims(fault, 4)[0]];
  for (int rank = 0; rank < 4; ++rank) EXPECT_NEAR(hit[rank], 1000, 150) << rank;
}

TEST(FaultVictims, AreRank0OrAllButOneIfTheKindSaysSo) {
  Fault fault;
  fault.choice = 12345;
  fault.kind = FaultKind::kKillRank0;
  EXPECT_THAT(Victims(fault, 4), ElementsAre(0));
  fault.kind = FaultKind::kKillAllButOne;
  EXPECT_EQ(Victims(fault, 6).size(), 5);
}

// Hosts 0 to 2 with two ranks each, of which some do not train.
WorldView WorldOf(std::vector<int> host_of_rank) {
  WorldView world;
  world.host_of_rank = std::move(host_of_rank);
  world.hosts = {0, 1, 2};
  world.leader = 2;
  return world;
}

// The ranks that are left.
int RanksLeft(const WorldView& world, const HostVictims& victims) {
  int left = 0;
  for (size_t rank = 0; rank < world.host_of_rank.size(); ++rank) {
    left += !Contains(victims.hosts, world.host_of_rank[rank]) && !Contains(victims.ranks, static_cast<int>(rank));
  }
  return left;
}

TEST(HostVictims, LeaveARankWhoeverTrains) {
  const std::vector<std::vector<int>> worlds = {{0, 0, 1, 1, 2, 2}, {2, 0, 1}, {1, 1, 0}, {1, 1}, {2}, {}};
  int none = 0, most_hosts = 0;
  for (const Fault& fault : Faults(9, 3000)) {
    if (HostsNeeded(fault.kind) == 0) continue;
    for (const std::vector<int>& host_of_rank : worlds) {
      for (const int spared : {-1, 0}) {
        WorldView world = WorldOf(host_of_rank);
        world.spared = spared;
        const HostVictims victims = VictimsOf(fault, world);
        none += victims.hosts.empty();
        if (victims.hosts.empty()) continue;
        EXPECT_GE(RanksLeft(world, victims), 1) << FaultName(fault.kind);
        const std::set<int> different(victims.hosts.begin(), victims.hosts.end());
        EXPECT_EQ(different.size(), victims.hosts.size());
        EXPECT_EQ(different.count(spared), 0);
        most_hosts = std::max(most_hosts, static_cast<int>(different.size()));
        for (const int rank : victims.ranks) EXPECT_EQ(different.count(host_of_rank[rank]), 0);
      }
    }
  }
  EXPECT_GT(none, 0);
  EXPECT_EQ(most_hosts, 2);  // of three
}

TEST(HostVictims, AreThoseOfTheKind) {
  const WorldView world = WorldOf({1, 1, 0, 0, 2, 2});
  Fault fault;
  for (fault.choice = 0; fault.choice < 50; ++fault.choice) {
    fault.kind = FaultKind::kKillLeader;
    EXPECT_THAT(VictimsOf(fault, world).hosts, ElementsAre(2));
    fault.kind = FaultKind::kKillHostAndRank;
    EXPECT_EQ(VictimsOf(fault, world).hosts.size(), 1);
    EXPECT_EQ(VictimsOf(fault, world).ranks.size(), 1);
    fault.kind = FaultKind::kKillHostBesideNewcomer;
    EXPECT_EQ(VictimsOf(fault, world).hosts.size(), 2);
    fault.kind = FaultKind::kKillAllHostsButOne;
    EXPECT_EQ(RanksLeft(world, VictimsOf(fault, world)), 1);
  }
}

TEST(HostVictims, AreEveryHostEquallyOften) {
  std::map<int, int> hit;
  for (const Fault& fault : Faults(2, 3000, {FaultKind::kDrainHost})) {
    ++hit[VictimsOf(fault, WorldOf({0, 0, 1, 1, 2, 2})).hosts[0]];
  }
  for (int host = 0; host < 3; ++host) EXPECT_NEAR(hit[host], 1000, 150) << host;
}

TEST(Summary, HasPercentilesOfEachKindAndOfAll) {
  Summary summary;
  for (int i = 1; i <= 100; ++i) {
    summary.Add(FaultKind::kSegv, absl::Milliseconds(i), absl::Milliseconds(2 * i));
  }
  summary.Add(FaultKind::kAbort, absl::Milliseconds(7), absl::Milliseconds(8));
  EXPECT_EQ(summary.faults(), 101);
  const std::string table = summary.Table();
  EXPECT_THAT(table, HasSubstr("| SIGSEGV | 100 | 50 | 99 | 100 | 100 | 198 | 200 |\n"));
  EXPECT_THAT(table, HasSubstr("| SIGABRT | 1 | 7 | 7 | 7 | 8 | 8 | 8 |\n"));
  EXPECT_THAT(table, HasSubstr("| all | 101 | "));
}

}  // namespace
}  // namespace lockstep::elastic::chaos::internal
