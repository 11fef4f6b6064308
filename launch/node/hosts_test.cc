// Nodes on several hosts (network namespaces), whose links go down.

#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::ReadFile;
using ::testing::UnorderedElementsAre;

class HostsTest : public testing::NodesTest {
 protected:
  void StartJob(int hosts, const std::string& nnodes, const std::string& script, const std::string& conf = "") {
    MakeHosts(hosts);
    if (!hosts_) return;
    for (int host = 0; host < hosts; ++host) {
      StartOn(host, absl::StrCat(host),
              {absl::StrCat("--nnodes=", nnodes), "--rdzv_backend=tcp", "--max_restarts=3",
               absl::StrCat("--rdzv_endpoint=", hosts_->Address(0)),
               absl::StrCat("--rdzv_conf=last_call_timeout=20,", conf), "bash", "-c", script});
    }
  }

  // Returns whether each of these nodes has started ranks in a world of `size`.
  bool AllStarted(const std::vector<int>& hosts, int size) {
    return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return Started(absl::StrCat(host), size); });
  }
};

constexpr char kScript[] = "echo $WORLD_SIZE $RANK $$ $MASTER_ADDR >> $D/starts.$NODE; exec sleep 200";

TEST_F(HostsTest, RanksReachRankZeroAtItsAddress) {
  StartJob(2, "2", "echo $MASTER_ADDR");
  if (!hosts_) return;
  EXPECT_EQ(Wait("0"), 0) << Err("0");
  EXPECT_EQ(Wait("1"), 0) << Err("1");
  EXPECT_EQ(Out("0"), Out("1"));
  EXPECT_TRUE(Out("0") == hosts_->Address(0) + "\n" || Out("0") == hosts_->Address(1) + "\n") << Out("0");
}

TEST_F(HostsTest, WithStaticAddressesEachLauncherStartsItsPartAndEndsByItself) {
  MakeHosts(2);
  if (!hosts_) return;
  for (int host = 0; host < 2; ++host) {
    StartOn(host, absl::StrCat(host),
            {"--nnodes=2", absl::StrCat("--node_rank=", host), absl::StrCat("--master_addr=", hosts_->Address(0)),
             "--master_port=29500", "--nproc_per_node=2", "bash", "-c",
             "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT; exit $((RANK == 2 ? 3 : 0))"});
  }
  EXPECT_EQ(Wait("0"), 0) << Err("0");
  EXPECT_EQ(Wait("1"), 3) << Err("1");
  const auto line = [&](int rank) { return absl::StrCat(rank, " 4 ", hosts_->Address(0), " 29500"); };
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(Out("0"), '\n')), UnorderedElementsAre(line(0), line(1), ""));
  EXPECT_THAT(Out("1"), HasSubstr(line(2) + "\n"));
  EXPECT_THAT(Err("1"), HasSubstr("rank 2 (local rank 0, pid "));
  EXPECT_EQ(Err("0"), "");
}

TEST_F(HostsTest, AHostWhoseLinkGoesDownIsLeftOutAndEndsItsRanks) {
  StartJob(3, "2:3", kScript, "ttl=0.5");
  if (!hosts_) return;
  ASSERT_TRUE(AllStarted({0, 1, 2}, 3));
  ASSERT_TRUE(hosts_->Cut(2).ok());
  EXPECT_EQ(Wait("2"), 1);
  EXPECT_THAT(Err("2"), HasSubstr("has not been heard from for 20s"));
  EXPECT_TRUE(AllStarted({0, 1}, 2)) << Err("0");
  EXPECT_THAT(Err("1"), HasSubstr(" was lost; restart 1 of 3\n"));
  Signal("0", SIGTERM);
  EXPECT_EQ(Wait("1"), 128 + SIGTERM);
}

TEST_F(HostsTest, AHostWhoseLinkComesBackTakesPartAgain) {
  StartJob(2, "1:2", kScript, "ttl=3");
  if (!hosts_) return;
  ASSERT_TRUE(AllStarted({0, 1}, 2));
  ASSERT_TRUE(hosts_->Cut(1).ok());
  ASSERT_TRUE(AllStarted({0}, 1)) << Err("0");
  ASSERT_TRUE(hosts_->Mend(1).ok());
  EXPECT_TRUE(StartedAgain("1", 2, 2)) << Err("1");
  EXPECT_TRUE(StartedAgain("0", 2, 2)) << Err("0");
  EXPECT_THAT(Err("0"), HasSubstr(" can take part"));
  const std::string launcher = absl::StrCat("launch: the launcher at ", hosts_->Address(0), ":29400");
  EXPECT_THAT(Err("1"), HasSubstr(absl::StrCat(launcher,
                                               " does not answer (nothing was heard from it for 3s); this "
                                               "node ends its ranks and tries again for 57s\n",
                                               launcher, " answers again\n")));
}

TEST_F(HostsTest, AHostMayBeWithoutItsLinkForSomeTime) {
  StartJob(2, "1:2", kScript);
  if (!hosts_) return;
  ASSERT_TRUE(AllStarted({0, 1}, 2));
  ASSERT_TRUE(hosts_->Cut(1).ok());
  ASSERT_TRUE(AllStarted({0}, 1)) << Err("0");
  absl::SleepFor(absl::Seconds(8));
  ASSERT_TRUE(hosts_->Mend(1).ok());
  EXPECT_TRUE(StartedAgain("1", 2, 2)) << Err("1");
}

TEST_F(HostsTest, WithoutTheHostThatServesTheOthersEndInTime) {
  StartJob(3, "2:3", kScript, "ttl=0.5");
  if (!hosts_) return;
  ASSERT_TRUE(AllStarted({0, 1, 2}, 3));
  ASSERT_TRUE(hosts_->Cut(0).ok());
  EXPECT_EQ(Wait("1"), 1);
  EXPECT_EQ(Wait("2"), 1);
  EXPECT_THAT(Err("1"),
              HasSubstr(absl::StrCat("the launcher at ", hosts_->Address(0), ":29400 has not been heard from")));
}

TEST_F(HostsTest, AHostThatComesBackTakesPartAgain) {
  StartJob(2, "1:2", kScript);
  if (!hosts_) return;
  ASSERT_TRUE(AllStarted({0, 1}, 2));
  Signal("1", SIGKILL);
  ASSERT_TRUE(AllStarted({0}, 1)) << Err("0");
  StartOn(1, "back",
          {"--nnodes=1:2", "--rdzv_backend=tcp", "--max_restarts=3",
           absl::StrCat("--rdzv_endpoint=", hosts_->Address(0)), "bash", "-c", kScript});
  EXPECT_TRUE(
      Eventually([&] { return absl::StartsWith(ReadFile(folder_ + "starts.back"), "2 1 "); }, absl::Seconds(40)))
      << Err("back");
}

}  // namespace
}  // namespace lockstep::launch
