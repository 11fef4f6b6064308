// Several nodes of one job on one host, which meet by a real etcd of three members. Any node may die.

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
using ::testing::Not;

class EtcdNodesTest : public testing::NodesTest {
 protected:
  void SetUp() override { StartCluster(3); }

  void StartCluster(int members) {
    EtcdClusterOptions options;
    options.members = members;
    auto cluster = EtcdCluster::Start(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  std::vector<std::string> Node(const std::string& nnodes, const std::string& script) {
    return {absl::StrCat("--nnodes=", nnodes),
            "--rdzv_backend=etcd-v3",
            absl::StrCat("--rdzv_endpoint=", absl::StrJoin(cluster_->endpoints(), ",")),  // URLs
            "--rdzv_conf=last_call_timeout=1,ttl=3",
            "--max_restarts=5",
            "bash",
            "-c",
            script};
  }

  std::unique_ptr<EtcdCluster> cluster_;
};

constexpr char kScript[] =
    "echo $WORLD_SIZE $RANK >> $D/starts.$NODE; echo $$ > $D/pid.$NODE; [ -e $D/end ] && exit 0; exec sleep 200";

TEST_F(EtcdNodesTest, StartTogetherAndAFailureIsNamedOnAll) {
  const std::string script = "[ $RANK = 1 ] && exit 7; exec sleep 100";
  for (const char* name : {"a", "b"})
    Start(name, Node("2", absl::StrCat("[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 9; ", script)));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 9) << Err(name);
    EXPECT_THAT(Err(name), HasSubstr("exited with code 7; the ranks of the other host were ended; restart 1 of 5"));
  }
}

TEST_F(EtcdNodesTest, EachOfThemMayDie) {
  for (const char* name : {"a", "b", "c"}) Start(name, Node("1:3", kScript));
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Started(name, 3)) << Err(name);
  const pid_t rank = AwaitPid(folder_ + "pid.a");
  Signal("a", SIGKILL);
  for (const char* name : {"b", "c"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  EXPECT_TRUE(Gone(rank));
  Signal("b", SIGKILL);
  ASSERT_TRUE(Started("c", 1)) << Err("c");
  EXPECT_THAT(Err("c"), HasSubstr(" was lost; restart 2 of 5"));
  Signal("c", SIGTERM);
  EXPECT_EQ(Wait("c"), 128 + SIGTERM);
}

TEST_F(EtcdNodesTest, EachOfThemMayLeave) {
  Start("a", Node("1:3", kScript));
  ASSERT_TRUE(Started("a", 1)) << Err("a");  // it leads
  for (const char* name : {"b", "c"}) Start(name, Node("1:3", kScript));
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Started(name, 3)) << Err(name);
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  for (const char* name : {"b", "c"}) {
    ASSERT_TRUE(Started(name, 2)) << Err(name);
    EXPECT_THAT(Err(name), HasSubstr(" left the job: it received signal 15 (SIGTERM)\n"));
    EXPECT_THAT(Err(name), Not(HasSubstr("restart")));
  }
  for (const char* name : {"b", "c"}) Signal(name, SIGTERM);
  for (const char* name : {"b", "c"}) EXPECT_EQ(Wait(name), 128 + SIGTERM);
}

TEST_F(EtcdNodesTest, AJobOfFixedSizeEndsWhenTheLeaderLeaves) {
  Start("a", Node("2", kScript));
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }, absl::Seconds(30)));
  Start("b", Node("2", kScript));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  Signal("a", SIGTERM);
  for (const char* name : {"a", "b"}) EXPECT_EQ(Wait(name), 128 + SIGTERM);
  EXPECT_THAT(Err("b"), HasSubstr(" left the job: it received signal 15 (SIGTERM)\n"));
}

TEST_F(EtcdNodesTest, AMemberOfEtcdMayDie) {
  for (const char* name : {"a", "b"}) Start(name, Node("1:2", kScript));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  const absl::StatusOr<int> leader = cluster_->Leader();
  ASSERT_TRUE(leader.ok()) << leader.status();
  cluster_->Kill(*leader);
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_TRUE(Started("a", 1)) << Err("a");
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
}

// etcd has one member, so that its end is the end of etcd.
class OneEtcdTest : public EtcdNodesTest {
 protected:
  void SetUp() override { StartCluster(1); }

  // A regular expression.
  std::string Etcd() const {
    return "launch: etcd at " + absl::StrReplaceAll(cluster_->endpoints()[0], {{"http://", ""}});
  }
};

TEST_F(OneEtcdTest, LaunchersEndWithTheLastRank) {
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", "[ $NODE = b ] && sleep 0.3; date +%s%N > $D/ended.$NODE"));
  }
  ExpectPromptEnd({"a", "b"}, 0);
}

TEST_F(OneEtcdTest, OthersSeeANodeAtItsLocalAddress) {
  for (const int node : {0, 1}) {
    std::vector<std::string> args = Node("2", "echo $MASTER_ADDR");
    args.insert(args.begin(), {absl::StrCat("--node-rank=", node), absl::StrCat("--local-addr=127.0.0.", node + 2)});
    Start(absl::StrCat(node), args);
  }
  for (const char* name : {"0", "1"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), "127.0.0.2\n");
  }
}

TEST_F(OneEtcdTest, ALauncherSaysThatEtcdDoesNotAnswerAndThatItAnswersAgain) {
  Start("a", Node("1:2", kScript));
  ASSERT_TRUE(Started("a", 1)) << Err("a");
  cluster_->Kill(0);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("a"), "does not answer"); }, absl::Seconds(20)));
  EXPECT_TRUE(Eventually([&] { return Gone(AwaitPid(folder_ + "pid.a")); }, absl::Seconds(20)));
  ASSERT_TRUE(cluster_->Restart(0).ok());
  ASSERT_TRUE(StartedAgain("a", 1, 2)) << Err("a");
  EXPECT_THAT(Err("a"), ContainsRegex(Etcd() +
                                      " does not answer \\([^\n]+\\); this node ends its ranks and tries again for "
                                      "5[0-9]s\n" +
                                      Etcd() + " answers again\n"));
}

// All leases end meanwhile, so whoever leads first sees only itself.
TEST_F(OneEtcdTest, NoNodeIsLostWhenEtcdWasOutOfReachForAll) {
  for (const char* name : {"a", "b"}) {
    std::vector<std::string> args = Node("2", kScript);
    *absl::c_find(args, "--max_restarts=5") = "--max_restarts=0";
    Start(name, args);
  }
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  cluster_->Stop(0);
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err(name), "ends its ranks"); }, absl::Seconds(20)));
  }
  absl::SleepFor(absl::Seconds(4));
  cluster_->Continue(0);
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(StartedAgain(name, 2, 2)) << Err(name);
    EXPECT_THAT(Err(name), Not(HasSubstr("lost")));
    EXPECT_THAT(Err(name), ContainsRegex("hosts [^ ]+ and [^ ]+ were out of reach\n"));
  }
}

// The one that is left waits only a while for the other one.
TEST_F(OneEtcdTest, ANodeThatDiesWhileEtcdIsOutOfReachIsLost) {
  for (const char* name : {"a", "b"}) Start(name, Node("1:2", kScript));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  cluster_->Stop(0);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("a"), "ends its ranks"); }, absl::Seconds(20)));
  Signal("b", SIGKILL);
  cluster_->Continue(0);
  EXPECT_TRUE(Started("a", 1)) << Err("a");
  EXPECT_THAT(Err("a"), ContainsRegex("host [^ ]+ was lost"));
}

TEST_F(OneEtcdTest, ANodeThatLeavesDuringAnOutageSaysThatTheOthersDoNotKnow) {
  for (const char* name : {"a", "b"}) Start(name, Node("1:2", kScript));
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Started(name, 2)) << Err(name);
  cluster_->Stop(0);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("b"), "ends its ranks"); }, absl::Seconds(20)));
  Start("status", {"status", absl::StrCat(PidOf("b"))});
  EXPECT_EQ(Wait("status"), 0) << Err("status");
  EXPECT_THAT(Out("status"), ContainsRegex("\netcd at [^\n]+ does not answer\n"));
  Start("resize", {"resize", absl::StrCat(PidOf("b")), "1"});
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("resize"), "is asked to have 1 node, once it is known"); },
                         absl::Seconds(20)))
      << Err("resize");
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_THAT(Err("b"), HasSubstr("launch: the other nodes have not heard that this one leaves, so they will count it "
                                  "as lost\n"));
}

TEST_F(OneEtcdTest, ALauncherTriesForTheTimeToJoinUntilEtcdHasAnsweredOnce) {
  cluster_->Kill(0);
  std::vector<std::string> args = Node("2", "true");
  *absl::c_find(args, "--rdzv_conf=last_call_timeout=1,ttl=3") = "--rdzv_conf=join_timeout=7,ttl=1";
  Start("a", args);
  const absl::Time began = absl::Now();
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_LT(absl::Now() - began, absl::Seconds(20)) << "etcd's own limit is a minute";
  EXPECT_THAT(Err("a"), HasSubstr("for 7s")) << Err("a");
}

TEST_F(OneEtcdTest, TheLauncherThatLeadsSaysThatEverybodyCanTakePart) {
  secret_ = "";
  for (const char* name : {"a", "b"}) Start(name, Node("2", "true"));
  for (const char* name : {"a", "b"}) EXPECT_EQ(Wait(name), 0) << Err(name);
  const std::vector<std::string> parts = absl::StrSplit(Err("a") + Err("b"), "can take part in the job");
  EXPECT_EQ(parts.size(), 2) << Err("a") << Err("b");
}

TEST_F(OneEtcdTest, ASignalEndsALauncherWhoseEtcdDoesNotAnswerWithinSeconds) {
  Start("a", Node("1:2", kScript));
  ASSERT_TRUE(Started("a", 1)) << Err("a");
  cluster_->Stop(0);
  absl::Time began = absl::Now();
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_LT(absl::Now() - began, absl::Seconds(5));
  Start("never_met", Node("1:2", kScript));
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(Err("never_met"), "waiting at"); }, absl::Seconds(20)));
  began = absl::Now();
  Signal("never_met", SIGTERM);
  EXPECT_EQ(Wait("never_met"), 128 + SIGTERM);
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
}

}  // namespace
}  // namespace lockstep::launch
