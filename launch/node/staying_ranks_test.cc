// Ranks that stay when another one ends (launch/link), on several nodes of one job.

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/link/testing/places.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/rendezvous/etcd/testing/etcd_cluster.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using etcd::testing::EtcdCluster;
using ::testing::Contains;
using ::testing::ContainsRegex;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Place;

class StayingRanksTest : public testing::NodesTest {
 protected:
  // Starts a node of counting ranks.
  void StartNode(const std::string& name, const std::string& nnodes, std::vector<std::string> flags = {},
                 int host = -1) {
    std::vector<std::string> args = {absl::StrCat("--nnodes=", nnodes)};
    args.insert(args.end(), rendezvous_.begin(), rendezvous_.end());
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), program_.begin(), program_.end());
    StartOn(host, name, args);
  }

  void UseTcp(const std::string& address) {
    rendezvous_ = {"--rdzv_backend=tcp", absl::StrCat("--rdzv_endpoint=", address, ":", *FreePort()),
                   "--rdzv_conf=last_call_timeout=20"};
  }

  std::vector<Place> Await(int world_size, int after_generation = 0) const {
    return testing::AwaitPlaces(folder_ + "generations", world_size, after_generation);
  }

  std::vector<Place> On(const std::string& node, const std::vector<Place>& places) const {
    std::vector<Place> on;
    for (const Place& place : places) {
      if (place.node == node) on.push_back(place);
    }
    return on;
  }

  // The processes that both generations have, which must be in the same order.
  static std::vector<pid_t> Stayed(const std::vector<Place>& before, const std::vector<Place>& after) {
    std::vector<pid_t> stayed, order;
    for (const Place& place : before) {
      if (Has(after, place.pid)) stayed.push_back(place.pid);
    }
    for (const Place& place : after) {
      if (Has(before, place.pid)) order.push_back(place.pid);
    }
    EXPECT_EQ(stayed, order);
    return stayed;
  }

  static bool Has(const std::vector<Place>& places, pid_t pid) {
    return std::any_of(places.begin(), places.end(), [pid](const Place& place) { return place.pid == pid; });
  }

  bool Says(const std::string& node, const std::string& text) const {
    return Eventually([&] { return absl::StrContains(Err(node), text); }, absl::Seconds(60));
  }

  // A rank of this node is killed, and comes back. All others stay.
  std::vector<Place> KillRank(const std::vector<Place>& before, size_t rank) {
    kill(before[rank].pid, SIGKILL);
    const int ranks = static_cast<int>(before.size());
    const std::vector<Place> after = Await(ranks, before[0].generation);
    EXPECT_EQ(Stayed(before, after).size(), before.size() - 1);
    EXPECT_EQ(after.back().node, before[rank].node);
    EXPECT_EQ(after.back().local_rank, before[rank].local_rank);
    EXPECT_GE(after[0].step, before[0].step);
    const std::string reason = absl::StrCat("rank ", rank, " (local rank ", before[rank].local_rank, ", pid ",
                                            before[rank].pid, ") was killed by signal 9 (SIGKILL)");
    EXPECT_THAT(testing::ReadFile(folder_ + "generations"), HasSubstr(reason));
    for (const char* node : {"a", "b"}) EXPECT_TRUE(Says(node, reason)) << Err(node);
    return after;
  }

  void TearDown() override {
    unsetenv("DIE_EARLY");
    unsetenv("OPEN_AFTER_MS");
    unsetenv("STEPS");
    unsetenv("AFTER");
    unsetenv("AFTER_RANK");
    unsetenv("EXIT_CODE");
    unsetenv("END_JOB");
  }

  std::vector<std::string> rendezvous_, program_ = {getenv("COUNTING_RANK")};
};

class TcpStayingRanksTest : public StayingRanksTest {
 protected:
  TcpStayingRanksTest() { UseTcp("127.0.0.1"); }

  // The first node serves the others.
  std::vector<Place> StartTwo(const std::vector<std::string>& flags, const std::string& nnodes = "2") {
    StartNode("a", nnodes, flags);
    EXPECT_TRUE(Says("a", "nodes is there"));
    StartNode("b", nnodes, flags);
    return Await(4);
  }
};

TEST_F(TcpStayingRanksTest, OtherRanksOutliveOneOnEitherNode) {
  std::vector<Place> places = StartTwo({"--nproc_per_node=2"});
  EXPECT_EQ(On("a", places).size(), 2);
  const auto rank_on = [&](const std::string& node) { return static_cast<size_t>(On(node, places).back().rank); };
  places = KillRank(places, rank_on("b"));
  places = KillRank(places, rank_on("a"));
  const pid_t second = places[1].pid;
  places = KillRank(places, 0);
  EXPECT_EQ(places[0].pid, second);
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  for (const Place& place : places) EXPECT_TRUE(Gone(place.pid));
}

TEST_F(TcpStayingRanksTest, EachProcessHasItsOwnFileAndEvents) {
  program_ = {"--no-python", "sh", "-c", "echo $NODE $LOCAL_RANK $$; exec $COUNTING_RANK"};
  const std::vector<Place> first =
      StartTwo({"--nproc_per_node=2", "--redirects=1", absl::StrCat("--log-dir=", folder_, "logs"),
                absl::StrCat("--event-log=", folder_, "events")});
  const auto expect_file = [&](const Place& place, int attempt) {
    const std::string text = absl::StrCat(place.node, " ", place.local_rank, " ", place.pid, "\n");
    const std::string rank = absl::StrCat("/attempt_", attempt, "/", place.local_rank, "/stdout.log");
    EXPECT_THAT(testing::ReadFiles(folder_ + "logs/none_*" + rank), Contains(text)) << text;
  };
  for (const Place& place : first) expect_file(place, 0);
  const std::vector<Place> second = KillRank(first, 3);
  for (const Place& place : first) expect_file(place, 0);
  expect_file(second.back(), 1);
  EXPECT_EQ(testing::ReadFiles(folder_ + "logs/none_*/attempt_*/*/stdout.log").size(), 5);
  const std::string events = testing::ReadFile(folder_ + "events");
  for (const Place& place : {first[0], first[1], first[2], first[3], second.back()}) {
    EXPECT_THAT(events, HasSubstr(absl::StrCat("\"local_rank\":", place.local_rank, ",\"pid\":", place.pid, "}")));
  }
  EXPECT_THAT(events, ContainsRegex(absl::StrCat("\"rank_ended\".*\"pid\":", first[3].pid, ",.*SIGKILL")));
}

TEST_F(TcpStayingRanksTest, ARankThatIsKilledBeforeAllHaveJoinedComesBack) {
  const std::string script =
      "[ $NODE = b ] && [ $LOCAL_RANK = 1 ] && mkdir $D/slow 2> /dev/null && sleep 1 && kill -9 $$; exec "
      "$COUNTING_RANK";
  program_ = {"--no-python", "sh", "-c", script};
  const std::vector<Place> places = StartTwo({"--nproc_per_node=2"});
  EXPECT_EQ(places[0].generation, 1);
  EXPECT_EQ(On("b", places).size(), 2);
  EXPECT_TRUE(
      Says("b", "was killed by signal 9 (SIGKILL) before all ranks had joined; another process takes its place"));
  for (const char* node : {"a", "b"}) EXPECT_THAT(Err(node), Not(HasSubstr("restart")));
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
}

// As while they load their libraries. No rank of their node is left.
TEST_F(TcpStayingRanksTest, RanksThatAreKilledBeforeAnyHasOpenedComeBack) {
  setenv("DIE_EARLY", "2", 1);
  setenv("OPEN_AFTER_MS", "700", 1);
  EXPECT_EQ(StartTwo({"--nproc_per_node=2"})[0].generation, 1);
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_THAT(Err("a") + Err("b"), HasSubstr("before all ranks had joined; another process takes its place"));
}

TEST_F(TcpStayingRanksTest, RanksThatHaveFinishedMayAskForAnotherStart) {
  setenv("STEPS", "50", 1);
  setenv("EXIT_CODE", "75", 1);
  StartTwo({"--nproc_per_node=2"});
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(Wait(node), 75) << Err(node);
    EXPECT_THAT(Err(node), HasSubstr(" exited with code 75; the job can be started again\n"));
  }
}

TEST_F(TcpStayingRanksTest, ARankMayEndTheJob) {
  setenv("STEPS", "50", 1);
  setenv("END_JOB", "sample 7 is broken", 1);
  StartTwo({"--nproc_per_node=2"});
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(Wait(node), 1) << Err(node);
    EXPECT_THAT(Err(node), HasSubstr("launch: sample 7 is broken\n"));
    EXPECT_THAT(Err(node), Not(HasSubstr("generation 2")));
  }
}

TEST_F(TcpStayingRanksTest, ASpareOfTheNodeTakesThePlaceOfARank) {
  const std::vector<Place> first = StartTwo({"--nproc_per_node=2", "--spares=1"});
  absl::SleepFor(absl::Seconds(1));  // the spares wait too
  const Place killed = On("b", first)[0];
  kill(killed.pid, SIGKILL);
  const std::vector<Place> second = Await(4, 1);
  EXPECT_EQ(second[0].generation, 2);
  EXPECT_EQ(Stayed(first, second).size(), 3);
  EXPECT_EQ(second[3].node, "b");
  EXPECT_EQ(second[3].local_rank, killed.local_rank);
}

TEST_F(TcpStayingRanksTest, OtherNodesOutliveALauncherAndANodeThatComesMakesTheWorldGrow) {
  StartNode("a", "1:3", {"--nproc_per_node=2"});
  ASSERT_TRUE(Says("a", "nodes is there"));
  for (const char* node : {"b", "c"}) StartNode(node, "1:3", {"--nproc_per_node=2"});
  const std::vector<Place> first = Await(6);
  Signal("b", SIGKILL);
  const std::vector<Place> second = Await(4, first[0].generation);
  EXPECT_EQ(Stayed(first, second).size(), 4);
  for (const Place& place : On("b", first)) {
    EXPECT_TRUE(Eventually([&] { return Gone(place.pid); }, absl::Seconds(30)));
  }
  for (const Place& place : second) EXPECT_THAT(place.reason, HasSubstr(" was lost"));
  EXPECT_TRUE(Says("c", " was lost")) << Err("c");
  StartNode("d", "1:3", {"--nproc_per_node=2"});
  const std::vector<Place> third = Await(6, second[0].generation);
  EXPECT_EQ(Stayed(second, third).size(), 4);
  EXPECT_EQ(third[5].node, "d");
  EXPECT_EQ(third[5].step, third[0].step);
  Signal("c", SIGTERM);
  EXPECT_EQ(Wait("c"), 128 + SIGTERM);
  EXPECT_EQ(Stayed(third, Await(4, third[0].generation)).size(), 4);
}

TEST_F(TcpStayingRanksTest, ADrainedNodeLeavesAfterAStep) {
  const std::vector<Place> first = StartTwo({"--nproc_per_node=2"}, "1:2");
  Start("drain", {"drain", absl::StrCat(PidOf("b"))});
  EXPECT_EQ(Wait("drain"), 0) << Err("drain");
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  const std::vector<Place> second = Await(2, first[0].generation);
  EXPECT_EQ(Stayed(first, second).size(), 2);
  for (const Place& place : second) EXPECT_THAT(place.reason, HasSubstr(" leaves"));
}

TEST_F(TcpStayingRanksTest, RanksWaitForAnotherNodeIfTheJobNeedsIt) {
  const std::vector<Place> first = StartTwo({"--nproc_per_node=2"});
  Signal("b", SIGKILL);
  for (const Place& place : On("b", first)) {
    EXPECT_TRUE(Eventually([&] { return Gone(place.pid); }, absl::Seconds(30)));
  }
  EXPECT_TRUE(
      Says("a", "launch: 1 of at least 2 nodes are there; the ranks wait for others, for 10m at most; before, "))
      << Err("a");
  StartNode("c", "2", {"--nproc_per_node=2"});
  EXPECT_EQ(Stayed(first, Await(4, first[0].generation)).size(), 2);
  for (const Place& place : testing::Places(folder_ + "generations")) {
    EXPECT_NE(place.world_size, 2) << "a generation of one node";
  }
}

TEST_F(TcpStayingRanksTest, TheBudgetOfRestartsEndsTheJobOnAllNodes) {
  std::vector<Place> places = StartTwo({"--nproc_per_node=2", "--max_restarts=1"});
  kill(On("b", places)[1].pid, SIGKILL);
  places = Await(4, places[0].generation);
  const Place last = On("a", places)[0];
  kill(last.pid, SIGKILL);
  for (const char* node : {"a", "b"}) {
    EXPECT_EQ(Wait(node), 128 + SIGKILL);
    EXPECT_THAT(Err(node), HasSubstr(absl::StrCat("pid ", last.pid,
                                                  ") was killed by signal 9 (SIGKILL); all other ranks "
                                                  "were ended; after 1 restart\n")));
  }
}

TEST_F(TcpStayingRanksTest, EndsWithSuccessWhenAllHaveFinished) {
  setenv("STEPS", "1000", 1);
  kill(StartTwo({"--nproc_per_node=2"})[3].pid, SIGKILL);
  EXPECT_EQ(Wait("a"), 0) << Err("a");
  EXPECT_EQ(Wait("b"), 0) << Err("b");
}

TEST_F(TcpStayingRanksTest, AJobWhoseWorkIsDoneGoesOnWithoutARankThatDies) {
  setenv("STEPS", "50", 1);
  setenv("AFTER_RANK", "3", 1);
  for (const int signal : {SIGKILL, SIGSEGV}) {
    setenv("AFTER", absl::StrCat(signal).c_str(), 1);
    StartTwo({"--nproc_per_node=2"});
    for (const char* node : {"a", "b"}) {
      EXPECT_EQ(Wait(node), signal == SIGKILL ? 0 : 128 + SIGSEGV) << Err(node);
      EXPECT_THAT(Err(node), ContainsRegex(absl::StrCat("launch: host .*: rank 3 .* was killed by signal ", signal,
                                                        " .*, after all ranks had done their work\n")));
      EXPECT_THAT(Err(node), Not(HasSubstr("generation 2")));
    }
    remove((folder_ + "generations").c_str());
    UseTcp("127.0.0.1");
  }
}

// On hosts with links.
TEST_F(StayingRanksTest, OtherHostsOutliveOneWhoseLinkGoesDown) {
  MakeHosts(3);
  if (!hosts_) return;
  UseTcp(hosts_->Address(0));
  for (int host = 0; host < 3; ++host) StartNode(absl::StrCat(host), "1:3", {"--nproc_per_node=2"}, host);
  const std::vector<Place> first = Await(6);
  ASSERT_TRUE(hosts_->Cut(2).ok());
  const std::vector<Place> second = Await(4, first[0].generation);
  EXPECT_EQ(Stayed(first, second).size(), 4);
  for (const Place& place : On("2", first)) {
    EXPECT_TRUE(Eventually([&] { return Gone(place.pid); }, absl::Seconds(30)));
  }
  ASSERT_TRUE(hosts_->Mend(2).ok());
}

class EtcdStayingRanksTest : public StayingRanksTest {
 protected:
  void SetUp() override {
    auto cluster = EtcdCluster::Start({});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    UseTtl(3);
  }

  void UseTtl(int seconds) {
    const std::string endpoints = absl::StrReplaceAll(absl::StrJoin(cluster_->endpoints(), ","), {{"http://", ""}});
    rendezvous_ = {"--rdzv_backend=etcd-v3", absl::StrCat("--rdzv_endpoint=", endpoints),
                   absl::StrCat("--rdzv_conf=last_call_timeout=1,ttl=", seconds)};
  }

  std::unique_ptr<EtcdCluster> cluster_;
};

// The ranks of the others do not wait until its lease ends.
TEST_F(EtcdStayingRanksTest, ALauncherIsMissedAtOnceWhicheverOfItsProcessesIsKilled) {
  UseTtl(60);
  StartNode("a", "1:2");
  StartNode("b0", "1:2");
  std::vector<Place> places = Await(2);
  for (int i = 0; i < 3; ++i) {
    const std::string node = absl::StrCat("b", i);
    const absl::Time start = absl::Now();
    kill(ProcessesOf(node)[i], SIGKILL);
    const std::vector<Place> alone = Await(1, places[0].generation);
    EXPECT_LT(absl::Now() - start, absl::Seconds(20)) << "process " << i;
    EXPECT_EQ(Stayed(places, alone).size(), 1);
    for (const Place& place : On(node, places)) EXPECT_TRUE(Gone(place.pid)) << "the others were told too early";
    StartNode(absl::StrCat("b", i + 1), "1:2");
    places = Await(2, alone[0].generation);
  }
}

TEST_F(EtcdStayingRanksTest, ALauncherThatIsStoppedIsNotLost) {
  UseTtl(60);
  StartNode("a", "1:2");
  StartNode("b", "1:2");
  const std::vector<Place> places = Await(2);
  for (const pid_t pid : ProcessesOf("b")) {
    kill(pid, SIGSTOP);
    absl::SleepFor(absl::Seconds(1));
    EXPECT_EQ(testing::Places(folder_ + "generations").back().generation, places[0].generation);
    kill(pid, SIGCONT);
  }
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  for (const Place& place : Await(1, places[0].generation))
    EXPECT_THAT(place.reason, HasSubstr("received signal 15 (SIGTERM)"));
}

TEST_F(EtcdStayingRanksTest, AKilledLauncherEndsThoughEtcdDoesNotAnswer) {
  UseTtl(60);
  for (const char* node : {"a", "b"}) StartNode(node, "1:2");
  Await(2);
  for (int member = 0; member < 3; ++member) cluster_->Stop(member);
  const absl::Time start = absl::Now();
  kill(ProcessesOf("a")[2], SIGKILL);
  EXPECT_EQ(Wait("a"), 128 + SIGKILL);
  EXPECT_THAT(Err("a"), HasSubstr("launch: the other nodes see the loss of this one only when its lease ends, within "
                                  "1m: etcd http://127.0.0.1:"));
  cluster_.reset();
  kill(ProcessesOf("b")[2], SIGKILL);
  EXPECT_EQ(Wait("b"), 128 + SIGKILL);
  EXPECT_LT(absl::Now() - start, absl::Seconds(40));
}

TEST_F(EtcdStayingRanksTest, RanksAndLaunchersMayDieAndNodesComeAndLeave) {
  StartNode("a", "1:3", {"--nproc_per_node=2"});
  StartNode("b", "1:3", {"--nproc_per_node=2"});
  std::vector<Place> places = Await(4);
  places = KillRank(places, 3);
  places = KillRank(places, 0);
  StartNode("c", "1:3", {"--nproc_per_node=2"});
  const std::vector<Place> three = Await(6, places[0].generation);
  EXPECT_EQ(Stayed(places, three).size(), 4);
  Start("drain", {"drain", absl::StrCat(PidOf("b"))});
  EXPECT_EQ(Wait("drain"), 0) << Err("drain");
  const std::vector<Place> two = Await(4, three[0].generation);
  EXPECT_EQ(Stayed(three, two).size(), 4);
  // One of these two leads, after the other one.
  StartNode("d", "1:3", {"--nproc_per_node=2"});
  places = Await(6, two[0].generation);
  Signal("a", SIGKILL);
  const std::vector<Place> without_a = Await(4, places[0].generation);
  EXPECT_EQ(Stayed(places, without_a).size(), 4);
  Signal("c", SIGKILL);
  EXPECT_EQ(Stayed(without_a, Await(2, without_a[0].generation)).size(), 2);
  Signal("d", SIGTERM);
  EXPECT_EQ(Wait("d"), 128 + SIGTERM);
}

}  // namespace
}  // namespace lockstep::launch
