// Nodes on several hosts (network namespaces), each of which also has a member of etcd. Links go down and come back.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using etcd::testing::EtcdCluster;
using etcd::testing::EtcdClusterOptions;
using testing::AwaitPid;
using ::testing::ContainsRegex;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;

constexpr int kHosts = 3;
constexpr char kScript[] = "echo $WORLD_SIZE $RANK >> $D/starts.$NODE; echo $$ > $D/pid.$NODE; exec sleep 200";

class EtcdHostsTest : public testing::NodesTest {
 protected:
  void SetUp() override {
    MakeHosts(kHosts);
    if (!hosts_) return;
    EtcdClusterOptions options;
    options.members = kHosts;
    options.hosts = hosts_.get();
    auto cluster = EtcdCluster::Start(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  void TearDown() override { cluster_.reset(); }

  void StartNode(int host, const std::string& name) {
    const std::string endpoints = absl::StrReplaceAll(absl::StrJoin(cluster_->endpoints(), ","), {{"http://", ""}});
    StartOn(host, name,
            {"--nnodes=1:3", "--rdzv_backend=etcd-v3", absl::StrCat("--rdzv_endpoint=", endpoints),
             "--rdzv_conf=last_call_timeout=2", "--max_restarts=5", "bash", "-c", kScript});
  }

  std::unique_ptr<EtcdCluster> cluster_;
};

TEST_F(EtcdHostsTest, TheJobOutlivesTheHostWithTheLeaderOfEtcdWhichTakesPartAgainWhenItsLinkIsBack) {
  for (int host = 0; host < kHosts; ++host) StartNode(host, absl::StrCat(host));
  for (int host = 0; host < kHosts; ++host) ASSERT_TRUE(Started(absl::StrCat(host), 3)) << Err("0");
  const absl::StatusOr<int> leader = cluster_->Leader();
  ASSERT_TRUE(leader.ok()) << leader.status();
  const std::string cut = absl::StrCat(*leader), other = absl::StrCat((*leader + 1) % kHosts),
                    third = absl::StrCat((*leader + 2) % kHosts);
  const pid_t rank = AwaitPid(folder_ + "pid." + cut);
  ASSERT_TRUE(hosts_->Cut(*leader).ok());
  ASSERT_TRUE(Started(other, 2)) << Err(other);
  ASSERT_TRUE(Started(third, 2)) << Err(third);
  // On a loaded machine the others may miss etcd for longer than the time to live, too, while it elects another leader.
  EXPECT_THAT(Err(other), ContainsRegex("was lost|were lost|was out of reach"));
  EXPECT_TRUE(Eventually([&] { return Gone(rank); }, absl::Seconds(20))) << "a rank of the lost host runs on";
  ASSERT_TRUE(hosts_->Mend(*leader).ok());
  for (const std::string& name : {cut, other, third}) EXPECT_TRUE(StartedAgain(name, 3, 2)) << Err(name);
}

TEST_F(EtcdHostsTest, ANodeMayComeLateLeaveAndReturn) {
  StartNode(0, "0");
  StartNode(1, "1");
  for (const char* name : {"0", "1"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  StartNode(2, "late");
  for (const char* name : {"0", "1", "late"}) ASSERT_TRUE(Started(name, 3)) << Err(name);
  Signal("late", SIGTERM);
  EXPECT_EQ(Wait("late"), 128 + SIGTERM);
  for (const char* name : {"0", "1"}) ASSERT_TRUE(StartedAgain(name, 2, 2)) << Err(name);
  EXPECT_THAT(Err("0"), HasSubstr(" left the job: it received signal 15 (SIGTERM)\n"));
  StartNode(2, "back");
  EXPECT_TRUE(Started("back", 3)) << Err("back");
  for (const char* name : {"0", "1"}) EXPECT_TRUE(StartedAgain(name, 3, 2)) << Err(name);
}

}  // namespace
}  // namespace lockstep::launch
