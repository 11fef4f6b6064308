// Trainings on three hosts (network namespaces) that all reach the rendezvous, but not all each other.

#include <signal.h>
#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic {
namespace {

using launch::testing::Eventually;
using launch::testing::ReadFile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kHosts = 3;
constexpr int kPort = 29400;  // of the rendezvous, which host 0 serves

class CutHostsTest : public launch::testing::NodesTest {
 protected:
  // `ranks` on each host; rank 0 on `first`.
  void StartTraining(const std::string& nnodes, int first, int ranks = 1) {
    MakeHosts(kHosts);
    if (!hosts_) return;
    setenv("STEPS", "1000000", 1);
    setenv("PAUSE_US", "20000", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    for (int host = 0; host < kHosts; ++host) {
      StartOn(host, absl::StrCat(host),
              {absl::StrCat("--nnodes=", nnodes), absl::StrCat("--node_rank=", (host + kHosts - first) % kHosts),
               "--rdzv_backend=tcp", absl::StrCat("--rdzv_endpoint=", hosts_->Address(0), ":", kPort),
               "--max_restarts=3", absl::StrCat("--nproc_per_node=", ranks), getenv("SMALL_TRAINING")});
    }
    ASSERT_TRUE(AwaitStep(kHosts * ranks)) << Err("0");
  }

  // Packets between two hosts are lost, but not the launchers'.
  void Cut(int a, int b) const {
    ASSERT_EQ(hosts_->CutPath(a, b, kPort), absl::OkStatus());
    ASSERT_EQ(hosts_->CutPath(b, a, kPort), absl::OkStatus());
  }

  // Returns whether the last generation has so many ranks, and has completed a step.
  bool AwaitStep(int ranks, absl::Duration limit = absl::Seconds(60)) const {
    return Eventually(
        [&] {
          int generation = 0, rank = 0, size = 0;
          const std::vector<std::string> lines =
              absl::StrSplit(ReadFile(folder_ + "generations"), '\n', absl::SkipEmpty());
          if (lines.empty() || sscanf(lines.back().c_str(), "%d %d of %d", &generation, &rank, &size) != 3) {
            return false;
          }
          const std::vector<std::string> first =
              absl::StrSplit(ReadFile(folder_ + "first_steps"), '\n', absl::SkipEmpty());
          return size == ranks && !first.empty() && first.back() == absl::StrCat(generation);
        },
        limit);
  }

  std::string Named(int host) const { return absl::StrCat(" \\(", hosts_->Address(host), "\\)"); }

  void ExpectEndAfterSigterm() {
    Signal("0", SIGTERM);
    for (int host = 0; host < kHosts; ++host) EXPECT_EQ(Wait(absl::StrCat(host)), 128 + SIGTERM);
  }
};

TEST_F(CutHostsTest, TheLaterOneOfTwoThatDoNotReachEachOtherIsLeftOut) {
  StartTraining("2:3", 0);
  if (!hosts_) return;
  const absl::Time cut = absl::Now();
  Cut(1, 2);
  EXPECT_TRUE(AwaitStep(2)) << Err("0");
  EXPECT_LT(absl::Now() - cut, absl::Seconds(45));
  const std::string line =
      absl::StrCat("launch: host [^ ]+", Named(2), " is left out, and is tried again in 1m: it and ", "host [^ ]+",
                   Named(1), " do not reach each other\n");
  for (const char* host : {"0", "1", "2"}) EXPECT_THAT(Err(host), ContainsRegex(line));
  ExpectEndAfterSigterm();
}

TEST_F(CutHostsTest, TheHostOfRank0IsLeftOutIfItIsCutOffFromTheOthers) {
  StartTraining("2:3", 1);
  if (!hosts_) return;
  Cut(1, 0);
  Cut(1, 2);
  const auto is_left_out = [&] {
    return absl::StrContains(Err("0"), absl::StrCat("(", hosts_->Address(1), ") is left out"));
  };
  EXPECT_TRUE(Eventually(is_left_out, absl::Seconds(100))) << Err("0");
  EXPECT_TRUE(AwaitStep(2)) << Err("0");
  ExpectEndAfterSigterm();
}

// Only the one of the two hosts that nothing arrives at finds out.
TEST_F(CutHostsTest, OneDirectionIsEnough) {
  StartTraining("2:3", 0);
  if (!hosts_) return;
  ASSERT_EQ(hosts_->CutPath(2, 1, kPort), absl::OkStatus());
  EXPECT_TRUE(AwaitStep(2)) << Err("0");
  ExpectEndAfterSigterm();
}

// With several ranks on a host, the backend is hierarchical. It connects over Gloo when two ranks first exchange
// something.
TEST_F(CutHostsTest, TheSameHoldsForHostsWithSeveralRanks) {
  StartTraining("2:3", 0, /*ranks=*/2);
  if (!hosts_) return;
  Cut(1, 2);
  EXPECT_TRUE(AwaitStep(4)) << Err("0");
  ExpectEndAfterSigterm();
}

// The generation with all three hosts fails while its ranks connect, and the others go on as before.
TEST_F(CutHostsTest, AHostThatIsTriedAgainInVainIsLeftOutForTwiceAsLong) {
  StartTraining("2:3", 0);
  if (!hosts_) return;
  Cut(1, 2);
  const auto says = [&] { return absl::StrContains(Err("0"), " is left out, and is tried again in 2m"); };
  EXPECT_TRUE(Eventually(says, absl::Seconds(150))) << Err("0");
  EXPECT_TRUE(AwaitStep(2)) << Err("0");
  ExpectEndAfterSigterm();
}

TEST_F(CutHostsTest, AllAreTriedAgainIfAllAreNeeded) {
  StartTraining("3", 0);
  if (!hosts_) return;
  Cut(1, 2);
  const auto says = [&] {
    return absl::StrContains(
        Err("0"), " do not all reach each other, but --nnodes needs 3 nodes, so all of them are tried again\n");
  };
  EXPECT_TRUE(Eventually(says, absl::Seconds(60))) << Err("0");
  ASSERT_EQ(hosts_->MendPath(1, 2, kPort), absl::OkStatus());
  ASSERT_EQ(hosts_->MendPath(2, 1, kPort), absl::OkStatus());
  EXPECT_TRUE(AwaitStep(3)) << Err("0");
  EXPECT_THAT(Err("0"), Not(HasSubstr("is left out")));
  ExpectEndAfterSigterm();
}

}  // namespace
}  // namespace lockstep::elastic
