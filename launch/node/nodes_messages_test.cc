// Several nodes of one job on one host, which meet over TCP: errors, and what launchers say while they wait.

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/testing/tcp_nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TcpNodesTest;

// A loaded machine may need so long for anything.
bool Soon(const std::function<bool()>& condition) { return Eventually(condition, absl::Seconds(30)); }

TEST_F(TcpNodesTest, SaysWhichNodesAreMissing) {
  Start("a", Node("3", {"--node_rank=1", "--rdzv_conf=join_timeout=3"}, "true"));
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_THAT(Err("a"), HasSubstr("launch: 1 of 3 nodes is there, at 127.0.0.1"));
  EXPECT_THAT(Err("a"),
              MatchesRegex("(.*\n)*launch: 1 of 3 nodes came within 3s: host [^ ]+; missing: node_rank 0, 2\n"));
}

TEST_F(TcpNodesTest, SaysThatNobodyAnswers) {
  std::vector<std::string> args = Node("2", {"--rdzv_conf=is_host=false,join_timeout=1"}, "true");
  Start("a", args);
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_THAT(Err("a"), HasSubstr(absl::StrCat("launch: no launcher answered at 127.0.0.1:", port_, " within 1s: ")));
}

// Nobody knows of this node yet, so nobody needs to see that it leaves.
TEST_F(TcpNodesTest, ASignalEndsAtOnceALauncherThatNobodyHasAnswered) {
  Start("a", Node("2", {"--rdzv_conf=is_host=false"}, "true"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "waiting at"); }));
  const absl::Time began = absl::Now();
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
}

TEST_F(TcpNodesTest, RefusesAnotherSecretAndAnotherJob) {
  Start("a", Node("2", {}, "true"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }));
  Start("other_job", Node("2", {"--rdzv_id=other"}, "true"));
  EXPECT_NE(Wait("other_job"), 0);
  EXPECT_THAT(Err("other_job"), HasSubstr("the job there has the id \"none\", not \"other\""));
  const std::string right = secret_;
  secret_ = "another secret, which nobody there knows";
  Start("stranger", Node("2", {}, "true"));
  EXPECT_NE(Wait("stranger"), 0);
  EXPECT_THAT(Err("stranger"), HasSubstr("another secret (LOCKSTEP_JOB_SECRET)\n"));
  secret_.clear();
  Start("without", Node("2", {}, "true"));
  EXPECT_NE(Wait("without"), 0);
  EXPECT_THAT(Err("without"), HasSubstr("another secret (LOCKSTEP_JOB_SECRET); this node has none\n"));
  secret_ = right;
  Start("b", Node("2", {}, "true"));
  EXPECT_EQ(Wait("a"), 0);
  EXPECT_EQ(Wait("b"), 0);
  // Only the first one from this address.
  EXPECT_THAT(Err("a"), HasSubstr("launch: a launcher at 127.0.0.1 was refused: its job has the id \"other\", not "
                                  "\"none\"\n"));
  EXPECT_THAT(Err("a"), Not(HasSubstr("it has another secret")));
}

TEST_F(TcpNodesTest, TheLauncherThatServesNamesAStranger) {
  Start("a", Node("2", {}, "true"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }));
  secret_ = "another secret, which nobody there knows";
  Start("stranger", Node("2", {}, "true"));
  EXPECT_NE(Wait("stranger"), 0);
  EXPECT_TRUE(Soon([&] {
    return absl::StrContains(Err("a"), "launch: a launcher at 127.0.0.1 was refused: it has another secret");
  })) << Err("a");
}

// Three launchers that wait at once, since each test of that alone would wait as long.
TEST_F(TcpNodesTest, SayEveryNowAndThenWhatTheyWaitFor) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", port_);
  Start("alone", Node("2", {"--rdzv_conf=is_host=false"}, "true"));
  auto silent = ListenOnLoopback();
  ASSERT_TRUE(silent.ok());
  const std::string taken = absl::StrCat("127.0.0.1:", silent->port);
  const auto start_at = [this](const std::string& name, const std::string& where) {
    Start(name, {"--nnodes=2", "--rdzv_backend=tcp", absl::StrCat("--rdzv_endpoint=", where), "true"});
  };
  start_at("taken", taken);
  start_at("signalled", absl::StrCat("127.0.0.1:", *FreePort()));
  for (const char* name : {"alone", "taken"}) {
    ASSERT_TRUE(Soon([&] { return absl::StrContains(Err(name), "no launcher"); })) << Err(name);
  }
  EXPECT_THAT(Err("alone"), MatchesRegex(absl::StrCat("launch: waiting at ", endpoint, " until 2 nodes are there\n",
                                                      "launch: no launcher has answered at ", endpoint,
                                                      " for 1[0-9]s .of 10m.: Connection refused\n")));
  EXPECT_THAT(Err("taken"),
              MatchesRegex(absl::StrCat(
                  "launch: waiting at ", taken, " until 2 nodes are there\n", "launch: no launcher has answered at ",
                  taken, " for 1[0-9]s .of 10m.: what listens there does not answer as a launcher; this node ",
                  "has that address, but its port was taken by another program\n")));
  // Another line may follow the last one after 10 s, and the number of nodes changes now.
  Signal("signalled", SIGTERM);
  EXPECT_EQ(Wait("signalled"), 128 + SIGTERM);
  EXPECT_THAT(Err("signalled"), Not(HasSubstr("0 of 2 nodes")));
}

TEST_F(TcpNodesTest, SaysThatAnotherProgramListensThere) {
  auto listener = ListenOnLoopback();
  ASSERT_TRUE(listener.ok());
  std::vector<std::string> args = {"--nnodes=2", "--rdzv_backend=tcp",
                                   absl::StrCat("--rdzv_endpoint=127.0.0.1:", listener->port), "true"};
  Start("a", args);
  const UniqueFd connection(accept(listener->fd.get(), nullptr, nullptr));
  const std::string greeting = "SSH-2.0-OpenSSH_9.2 and some more text that is long enough\r\n";
  ASSERT_EQ(write(connection.get(), greeting.data(), greeting.size()), greeting.size());
  EXPECT_NE(Wait("a"), 0);
  EXPECT_THAT(Err("a"), HasSubstr("it is not a launcher of Lockstep"));
}

TEST_F(TcpNodesTest, OneNodeSaysThatItsEndpointCannotWork) {
  Start("a", Node("1", {"--rdzv_conf=is_host=false,join_timeout=1"}, "true"));
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_THAT(Err("a"), HasSubstr(absl::StrCat("launch: no launcher answered at 127.0.0.1:", port_, " within 1s: ")));
}

TEST_F(TcpNodesTest, SaysOnceThatMasterAddressAndPortAreNotUsed) {
  const std::string end =
      " not used: with --rdzv_backend=tcp or etcd-v3 the launchers choose the host and the port of rank 0 at each "
      "start\n";
  const std::string script = "echo $MASTER_ADDR $MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]";
  Start("a", Node("2", {"--max_restarts=1", "--master-addr=10.9.9.9", "--master-port=1"}, script));
  Start("b", Node("2", {"--max_restarts=1", "--master_port=1"}, script));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_THAT(Out(name), MatchesRegex("(127.0.0.1 [0-9][0-9]+\n)+"));
  }
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(Err("a"), "not used")).size(), 2) << Err("a");
  EXPECT_THAT(Err("a"), StartsWith("launch: --master-addr=10.9.9.9 and --master-port=1 are" + end));
  EXPECT_THAT(Err("b"), StartsWith("launch: --master_port=1 is" + end));
}

// On Kubernetes the name of another pod may become known only once that runs.
TEST_F(TcpNodesTest, AnUnknownNameIsLookedForUntilTheTimeIsOver) {
  const auto args = [this](const std::string& conf) {
    return std::vector<std::string>{"--nnodes=2", "--rdzv_backend=tcp",
                                    absl::StrCat("--rdzv_endpoint=no such host:", port_),
                                    absl::StrCat("--rdzv_conf=", conf), "true"};
  };
  Start("patient", args("join_timeout=60"));
  Start("a", args("join_timeout=2"));
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_THAT(Err("a"), MatchesRegex("launch: cannot find host no such host: [^\n]+; this node tries again for 2s\n"
                                     "launch: cannot find host no such host: [^\n]+ \\(tried for 2s\\)\n"));
  const absl::Time began = absl::Now();
  Signal("patient", SIGTERM);
  EXPECT_EQ(Wait("patient"), 128 + SIGTERM);
  EXPECT_THAT(Err("patient"), HasSubstr("tries again for 1m\nlaunch: the launcher received signal 15 (SIGTERM)\n"));
  EXPECT_LT(absl::Now() - began, absl::Seconds(2));
  // The node that must serve need not know its own name.
  Start("serves", args("is_host=true,join_timeout=3"));
  EXPECT_EQ(Wait("serves"), 1);
  EXPECT_THAT(Err("serves"), HasSubstr("launch: 1 of 2 nodes came within 3s: host "));
}

TEST_F(TcpNodesTest, AllNodesNameALauncherWithOtherFlags) {
  Start("a", Node("2", {}, "sleep 3"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }));
  Start("b", Node("2:3", {"--max_restarts=1", "--rdzv_conf=join_timeout=60"}, "sleep 3"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_THAT(Err(name),
                ContainsRegex("launch: host [^ ]+ was started with --nnodes=2:3 --max-restarts=1 "
                              "--rdzv-conf=join_timeout=1m, but host [^ ]+, which leads the job, with --nnodes=2 "
                              "--max-restarts=0 --rdzv-conf=join_timeout=10m, which counts\n"));
  }
}

// Its flags do not count, nor that it leaves.
TEST_F(TcpNodesTest, ALauncherOfAnotherJobIsRefusedAndTheJobGoesOn) {
  const std::string script = "touch $D/runs.$NODE; until [ -e $D/refused ]; do sleep 0.05; done; echo $WORLD_SIZE";
  const auto runs = [&](const char* name) { return access(absl::StrCat(folder_, "runs.", name).c_str(), F_OK) == 0; };
  for (const char* name : {"a", "b"}) Start(name, Node("2:3", {"--rdzv_conf=last_call_timeout=0.1"}, script));
  ASSERT_TRUE(Soon([&] { return runs("a") && runs("b"); }));
  Start("stranger", Node("2:3", {"--rdzv_conf=last_call_timeout=0.1"}, "exit 3"));
  EXPECT_EQ(Wait("stranger"), 2);
  const std::string why = absl::StrCat(" runs bash -c exit 3, the job runs bash -c ", script,
                                       ": is it another job? give it another --rdzv-id; "
                                       "--rdzv-conf=same_program=false allows it");
  EXPECT_THAT(Err("stranger"), HasSubstr(why));
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(Soon([&] { return absl::StrContains(Err(name), absl::StrCat(why, "; it was refused\n")); }))
        << Err(name);
  }
  std::ofstream(folder_ + "refused") << "1";
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), "2\n") << Err(name);
  }
}

TEST_F(TcpNodesTest, TakesOtherArgumentsIfThatIsAllowed) {
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", {"--rdzv_conf=same_program=false"}, absl::StrCat("echo ", name, " $WORLD_SIZE")));
  }
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), absl::StrCat(name, " 2\n"));
  }
}

// Whoever is alone says where it waits.
TEST_F(TcpNodesTest, MeetAtAnIpv6AddressHoweverItIsSpelled) {
  const auto node = [&](absl::string_view endpoint) {
    return std::vector<std::string>{
        "--nnodes=2", "--rdzv_backend=tcp", absl::StrCat("--rdzv_endpoint=", endpoint, ":", port_), "bash",
        "-c",         "echo $MASTER_ADDR"};
  };
  Start("a", node("::1"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), absl::StrCat("is there, at [::1]:", port_, ";")); }));
  Start("b", node("[::1]"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), "::1\n");
  }
}

TEST_F(TcpNodesTest, AnswersMistakesInOneLine) {
  const auto error = [&](const std::vector<std::string>& args) {
    unlink((folder_ + "a.err").c_str());
    Start("a", args);
    EXPECT_EQ(Wait("a"), 2);
    return Err("a");
  };
  EXPECT_EQ(error({"--nnodes=2", "--rdzv_backend=tcp", "true"}),
            "launch: --rdzv_backend=tcp needs --rdzv_endpoint=HOST:PORT, the same on every node; the launcher on HOST "
            "serves\n");
  EXPECT_EQ(error({"--nnodes=1:4", "true"}),
            "launch: --nnodes=1:4: expected one number, unless there is --rdzv_backend=tcp or etcd-v3\n");
  EXPECT_EQ(error({"--nnodes=4:1", "--rdzv_backend=tcp", "true"}),
            "launch: --nnodes=4:1: expected at least 1 node, and at most as many before the colon as after it\n");
  EXPECT_EQ(error({"--rdzv_backend=zookeeper", "true"}),
            "launch: --rdzv_backend=zookeeper: expected static, tcp (torchrun's c10d) or etcd-v3\n");
  EXPECT_EQ(error({"--rdzv_conf=join_timeot=3", "true"}),
            "launch: --rdzv_conf has no parameter join_timeot; did you mean join_timeout?\n");
  EXPECT_EQ(error({"--rdzv_conf=join_timeout=soon", "true"}),
            "launch: --rdzv_conf=join_timeout=soon: expected join_timeout in seconds, more than 0\n");
  EXPECT_EQ(error({"--rdzv_backend=tcp", "--nnodes=2", "--rdzv_endpoint=host:port", "true"}),
            "launch: --rdzv_endpoint=host:port: expected host or host:port\n");
  for (const char* backend : {"tcp", "etcd-v3"}) {
    EXPECT_EQ(error({"--rdzv_backend", backend, "--nnodes=2", "--rdzv_endpoint=[::1", "true"}),
              "launch: --rdzv_endpoint=[::1: expected an IPv6 address in brackets, as in [::1]:29400\n");
    EXPECT_EQ(error({"--rdzv_backend", backend, "--nnodes=2", "--rdzv_endpoint=fe80::1", "true"}),
              "launch: --rdzv_endpoint=fe80::1: expected the interface of a link-local address too, as in "
              "[fe80::1%eth0]:29400\n");
  }
  EXPECT_EQ(
      error({"--rdzv_backend=etcd-v3", "--nnodes=2", "--rdzv_endpoint=http://[fe80::1%25none]", "true"}),
      "launch: --rdzv_endpoint=http://[fe80::1%25none]: expected an interface of this host after the %, but there "
      "is no none\n");
  EXPECT_EQ(error({"--rdzv_backend=tcp", "--nnodes=2", "--rdzv_endpoint=a", "--local_addr=[::1", "true"}),
            "launch: --local_addr=[::1: expected a host without a port\n");
  for (const char* nnodes : {"2", "1:2"}) {
    EXPECT_EQ(error({"--rdzv_backend=tcp", "--nnodes", nnodes, "--rdzv_endpoint=localhost:0", "true"}),
              "launch: --rdzv_endpoint=localhost:0: expected a port that is the same on every node; port 0 is a free "
              "one, which other nodes cannot know\n");
  }
  EXPECT_EQ(error({"--rdzv_backend=etcd-v3", "--rdzv_endpoint=etcd1,etcd2:0", "true"}),
            "launch: --rdzv_endpoint=etcd1,etcd2:0: expected the port of a server of etcd, which is not 0\n");
  EXPECT_EQ(error({"--rdzv_backend=tcp", "--nnodes=2", "--rdzv_endpoint=http://127.0.0.1:29400", "true"}),
            "launch: --rdzv_endpoint=http://127.0.0.1:29400: expected host or host:port\n");
  EXPECT_EQ(error({"--rdzv_backend=etcd-v3", "--nnodes=2", "--rdzv_endpoint=http://host/path", "true"}),
            "launch: --rdzv_endpoint=http://host/path: expected host or host:port\n");
  EXPECT_EQ(error({"--rdzv_backend=etcd-v3", "--nnodes=2", "--rdzv_endpoint=https://host", "true"}),
            "launch: --rdzv_endpoint=https://host: expected http://, unless --rdzv_conf has cacert or cert\n");
  EXPECT_EQ(
      error({"--rdzv_backend=etcd-v3", "--nnodes=2", "--rdzv_conf=cacert=f", "--rdzv_endpoint=http://host", "true"}),
      "launch: --rdzv_endpoint=http://host: expected https://, since --rdzv_conf has cacert or cert\n");
  EXPECT_EQ(error({"--rdzv_backend=tcp", "--nnodes=2", "--node_rank=2", "--rdzv_endpoint=host", "true"}),
            "launch: node_rank must be from 0 to nnodes - 1 = 1, but is 2\n");
  EXPECT_EQ(error({"--rdzv_backend=tcp", "--node_rank=1", "true"}),
            "launch: node_rank must be from 0 to nnodes - 1 = 0, but is 1\n");
}

}  // namespace
}  // namespace lockstep::launch
