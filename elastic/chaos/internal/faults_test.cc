#include "lockstep/elastic/chaos/internal/faults.h"

#include <map>
#include <set>
#include <string>
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

std::string Text(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    text += FaultName(fault.kind) + " " + std::to_string(fault.choice) + " " + absl::FormatDuration(fault.delay) + "\n";
  }
  return text;
}

TEST(FaultSchedule, IsTheSameForTheSameSeed) {
  EXPECT_EQ(Text(Faults(7, 200)), Text(Faults(7, 200)));
  EXPECT_NE(Text(Faults(7, 200)), Text(Faults(8, 200)));
}

// The first faults of seed 1, as they were when this test was written: a seed in a report must say the same later.
TEST(FaultSchedule, IsTheSameOnEveryMachine) {
  std::vector<std::string> names;
  for (const Fault& fault : Faults(1, 3)) names.push_back(FaultName(fault.kind));
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

TEST(FaultVictims, AreDifferentRanksAndNeverAll) {
  for (const Fault& fault : Faults(9, 2000)) {
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
