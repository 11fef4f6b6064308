// Several nodes of one job on one host, which meet over TCP: their ranks, restarts and ends.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/node/testing/tcp_nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using testing::AwaitPid;
using ::testing::ElementsAre;
using testing::Eventually;
using testing::Gone;
using ::testing::HasSubstr;
using testing::KibibytesIn;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::ReadFile;
using testing::ReadFiles;
using ::testing::StartsWith;
using testing::TcpNodesTest;
using ::testing::UnorderedElementsAre;

// The ranks of the shell scripts below.
constexpr char kSleeps[] = "echo $$ > $D/pid.$RANK; exec sleep 100";

// A loaded machine may need so long for anything.
bool Soon(const std::function<bool()>& condition) { return Eventually(condition, absl::Seconds(30)); }

TEST_F(TcpNodesTest, GivesEachRankItsPlace) {
  const std::string script =
      "echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE $MASTER_ADDR $MASTER_PORT";
  Start("a", Node("3", {"--nproc_per_node=2"}, script));
  Start("b", Node("3", {"--nproc_per_node=1"}, script));
  Start("c", Node("3", {"--nproc_per_node=2"}, script));
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(Wait(name), 0) << Err(name);
  std::vector<std::string> places;
  std::string master;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(Out("a") + Out("b") + Out("c"), '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    ASSERT_EQ(words.size(), 8);
    EXPECT_EQ(words[3] + words[5] + words[6], "53127.0.0.1");
    if (master.empty()) master = words[7];
    EXPECT_EQ(words[7], master);
    places.push_back(words[0]);
  }
  EXPECT_THAT(places, UnorderedElementsAre("0", "1", "2", "3", "4"));
}

TEST_F(TcpNodesTest, NodeRanksMayBeGiven) {
  const std::string script = "echo $GROUP_RANK $RANK";
  Start("a", Node("2", {"--node_rank=1"}, script));
  Start("b", Node("2", {"--node_rank=0"}, script));
  EXPECT_EQ(Wait("a"), 0);
  EXPECT_EQ(Wait("b"), 0);
  EXPECT_EQ(Out("a"), "1 1\n");
  EXPECT_EQ(Out("b"), "0 0\n");
}

TEST_F(TcpNodesTest, ANodeRankThatIsThereTwiceIsAnError) {
  Start("a", Node("2", {"--node_rank=1"}, "true"));
  Start("b", Node("2", {"--node_rank=1"}, "true"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 2);
    EXPECT_THAT(Err(name), HasSubstr("node_rank 1 is used twice")) << name;
  }
}

TEST_F(TcpNodesTest, AFailureOnOneNodeEndsAllAndIsNamedOnAll) {
  const std::string script =
      "echo $$ > $D/pid.$RANK; if [ $NODE$LOCAL_RANK = b1 ]; then until [ -s $D/pid.0 ] && [ -s $D/pid.1 ] && "
      "[ -s $D/pid.2 ] && [ -s $D/pid.3 ]; do sleep 0.01; done; exit 7; fi; exec sleep 100";
  for (const char* name : {"a", "b"}) Start(name, Node("2", {"--nproc_per_node=2"}, script));
  EXPECT_EQ(Wait("b"), 7);
  EXPECT_EQ(Wait("a"), 7);
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(Gone(AwaitPid(absl::StrCat(folder_, "pid.", rank)))) << rank;
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(Err(name), MatchesRegex("launch: host .*: rank [13] \\(local rank 1, pid [0-9]+\\) exited with code 7; "
                                        "the other rank was ended; the ranks of the other host were ended\n"))
        << name;
  }
}

TEST_F(TcpNodesTest, EachNodeSaysTheCauseOnceWithTheLastLinesOfTheRank) {
  const std::string script = R"(echo $$ > $D/pid.$NODE; [ $NODE = a ] && exec sleep 60
      until [ -s $D/pid.a ]; do sleep 0.01; done
      echo "reading" >&2; echo "record 7 is damaged" >&2
      printf "LOCKSTEP1 9 1 200\nno more data" > $LOCKSTEP_ERROR_FILE; exit 3)";
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", {"--redirects=2", absl::StrCat("--log-dir=", folder_, "logs.", name)}, script));
  }
  for (const char* name : {"a", "b"}) EXPECT_EQ(Wait(name), 3);
  const std::string cause = absl::StrCat(
      "launch: host ", HostName(), ": rank [01] \\(local rank 0, pid ", AwaitPid(folder_ + "pid.b"),
      "\\) exited with code 3: no more data; the ranks of the other host were ended\nlaunch: the last lines of ",
      folder_, "logs.b/none_[a-z0-9]{8}/attempt_0/0/stderr.log:\n  reading\n  record 7 is damaged\n");
  for (const char* name : {"a", "b"}) {
    EXPECT_THAT(Err(name), MatchesRegex("(launch: [^\n]*waiting[^\n]*\n)*" + cause)) << name;
  }
}

TEST_F(TcpNodesTest, EndWithTheLastRank) {
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", {}, "[ $NODE = b ] && sleep 0.3; date +%s%N > $D/ended.$NODE"));
  }
  ExpectPromptEnd({"a", "b"}, 0);
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", {}, R"(if [ $NODE = a ]; then
          trap 'date +%s%N > $D/ended.a; exit' TERM; echo 1 > $D/ready; while :; do sleep 0.01; done
        fi
        until [ -s $D/ready ]; do sleep 0.01; done; date +%s%N > $D/ended.b; exit 7)"));
  }
  ExpectPromptEnd({"a", "b"}, 7);
}

TEST_F(TcpNodesTest, OthersSeeANodeAtItsLocalAddress) {
  Start("a", Node("2", {"--node_rank=0", "--local-addr=127.0.0.2"}, "echo $MASTER_ADDR"));
  Start("b", Node("2", {"--node_rank=1", "--local-addr=127.0.0.3"}, "echo $MASTER_ADDR"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    EXPECT_EQ(Out(name), "127.0.0.2\n");
  }
}

TEST_F(TcpNodesTest, EachGenerationHasAPortThatIsFree) {
  const std::string script = R"(echo $MASTER_PORT > $D/port.$NODE.$TORCHELASTIC_RESTART_COUNT
      until [ -s $D/taken.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done
      exit $((1 - TORCHELASTIC_RESTART_COUNT)))";
  for (const char* name : {"a", "b"}) Start(name, Node("2", {"--max_restarts=1"}, script));
  // Another process takes the port of the first generation before rank 0 does, and then there is another port.
  std::vector<UniqueFd> takers;
  for (const char* generation : {"0", "1"}) {
    const pid_t port = AwaitPid(absl::StrCat(folder_, "port.a.", generation));
    takers.push_back(testing::ListenAt(port));
    EXPECT_TRUE(takers.back().valid()) << "generation " << generation << ": port " << port;
    EXPECT_EQ(system(absl::StrCat("echo 1 > ", folder_, "taken.", generation).c_str()), 0);
  }
  for (const char* name : {"a", "b"}) EXPECT_EQ(Wait(name), 0) << Err(name);
}

TEST_F(TcpNodesTest, EachNodeHasFilesAndEventsOfItsRanksInEachGeneration) {
  const std::string script = R"(echo $NODE $LOCAL_RANK $TORCHELASTIC_RESTART_COUNT
      [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
      touch $D/started.$NODE$LOCAL_RANK; [ $NODE$LOCAL_RANK = b1 ] || exec sleep 60
      until [ -e $D/started.a0 -a -e $D/started.a1 -a -e $D/started.b0 ]; do sleep 0.01; done; exit 3)";
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2",
                     {"--nproc_per_node=2", "--max_restarts=1", "--redirects=1",
                      absl::StrCat("--log-dir=", folder_, "logs.", name),
                      absl::StrCat("--event-log=", folder_, "events.", name)},
                     script));
  }
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0) << Err(name);
    for (const char* generation : {"0", "1"}) {
      for (const char* rank : {"0", "1"}) {
        const std::string path = absl::StrCat("/none_*/attempt_", generation, "/", rank, "/stdout.log");
        EXPECT_THAT(ReadFiles(absl::StrCat(folder_, "logs.", name, path)),
                    ElementsAre(absl::StrCat(name, " ", rank, " ", generation, "\n")));
      }
    }
  }
  const std::string starts = "attempt_started rank_started rank_started rank_ended rank_ended ";
  EXPECT_EQ(EventsIn("events.a"), starts + "notice restart " + starts + "end ");
  EXPECT_EQ(EventsIn("events.b"), starts + "first_cause notice restart " + starts + "end ")
      << "the rank that failed was there";
  EXPECT_THAT(ReadFile(folder_ + "events.b"), HasSubstr(R"("nnodes":2,)"));
  EXPECT_THAT(ReadFile(folder_ + "events.a"), HasSubstr("exited with code 3; the other rank was ended; the ranks of "
                                                        "the other host were ended; restart 1 of 1\"}\n"));
}

TEST_F(TcpNodesTest, AllNodesStartAgainAfterAFailure) {
  const std::string script = R"(echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >> $D/starts.$NODE
      [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
      [ $RANK = 0 ] && exec sleep 60
      until [ $(wc -l < $D/starts.a) = $(wc -l < $D/starts.b) ]; do sleep 0.01; done; exit 3)";
  for (const char* name : {"a", "b"}) Start(name, Node("2", {"--max_restarts=2"}, script));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 0);
    const std::vector<std::string> starts = absl::StrSplit(ReadFile(folder_ + "starts." + name), '\n');
    ASSERT_EQ(starts.size(), 4) << ReadFile(folder_ + "starts." + name);
    for (int i = 0; i < 3; ++i) EXPECT_THAT(starts[i], StartsWith(absl::StrCat(i, " ")));
    EXPECT_THAT(Err(name), HasSubstr("exited with code 3; the ranks of the other host were ended; restart 1 of 2\n"));
    EXPECT_THAT(Err(name), HasSubstr("restart 2 of 2 in 100ms\n"));
  }
  EXPECT_EQ(ReadFile(folder_ + "starts.a"), ReadFile(folder_ + "starts.b"));
}

TEST_F(TcpNodesTest, AProgramThatIsNotThereIsNotTriedAgain) {
  WriteProgram("program", kSleeps);
  std::vector<std::string> args = Node("2", {"--max_restarts=3"}, "");
  args.resize(args.size() - 3);
  for (const auto& [name, folder] : std::map<std::string, std::string>{{"a", "/nonexistent/"}, {"b", folder_}}) {
    args.push_back(folder + "program");
    Start(name, args);
    args.pop_back();
  }
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(Wait(name), 127);
    EXPECT_THAT(Err(name), HasSubstr("/nonexistent/program"));
    EXPECT_THAT(Err(name), HasSubstr("a failed start-up is not retried"));
  }
}

TEST_F(TcpNodesTest, TheJobGoesOnWithoutANodeThatIsKilled) {
  const std::string script =
      "echo $$ > $D/pid.$NODE; [ $WORLD_SIZE = 1 ] && exit 0; echo $WORLD_SIZE > $D/two; exec sleep 100";
  Start("a", Node("1:2", {"--max_restarts=1"}, script));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 1 to 2 nodes"); }));
  Start("b", Node("1:2", {"--max_restarts=1"}, script));
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "two") == "2\n"; }));
  const pid_t rank = AwaitPid(folder_ + "pid.b");
  Signal("b", SIGKILL);
  EXPECT_EQ(Wait("a"), 0) << Err("a");
  EXPECT_THAT(Err("a"), HasSubstr(" was lost; restart 1 of 1\n"));
  EXPECT_TRUE(Soon([&] { return Gone(rank); }));
}

TEST_F(TcpNodesTest, WithoutRestartsANodeThatIsKilledEndsTheJob) {
  Start("a", Node("1:2", {}, kSleeps));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 1 to 2 nodes"); }));
  Start("b", Node("1:2", {}, kSleeps));
  for (const char* rank : {"0", "1"}) AwaitPid(absl::StrCat(folder_, "pid.", rank));
  Signal("b", SIGKILL);
  EXPECT_EQ(Wait("a"), 1);
  EXPECT_THAT(Err("a"), HasSubstr(" was lost"));
}

TEST_F(TcpNodesTest, ANodeThatComesLaterTakesPartAndOneThatLeavesDoesNotEndTheJob) {
  const std::string script =
      "echo $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT >> $D/starts.$NODE; [ -e $D/end ] && exit 0; exec sleep 100";
  const std::vector<std::string> node = Node("1:2", {"--rdzv_conf=last_call_timeout=0.1"}, script);
  Start("a", node);
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.a") == "1 0\n"; }));
  Start("b", node);
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.b") == "2 0\n"; }));
  EXPECT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.a") == "1 0\n2 0\n"; }));
  EXPECT_THAT(Err("a"), HasSubstr(" can take part\n"));
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.a") == "1 0\n2 0\n1 0\n"; }));
  EXPECT_THAT(Err("a"), HasSubstr(" left the job: it received signal 15 (SIGTERM)\n"));
  unlink((folder_ + "b.err").c_str());  // it may have seen that it left
  Start("b", node);
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.b") == "2 0\n2 0\n"; }));
  EXPECT_THAT(Err("b"), Not(HasSubstr(" left the job"))) << "that was before it came";
  EXPECT_TRUE(Soon([&] { return absl::EndsWith(Err("a"), " can take part\n"); })) << Err("a");
  Signal("a", SIGINT);
  EXPECT_EQ(Wait("a"), 128 + SIGINT);
  EXPECT_EQ(Wait("b"), 128 + SIGINT);
  EXPECT_THAT(Err("b"), HasSubstr(" left the job: it received signal 2 (SIGINT)\n"));
}

TEST_F(TcpNodesTest, ANodeThatComesLaterWithoutTheProgramDoesNotDisturbTheOthers) {
  const std::vector<std::string> flags = {"--rdzv_conf=last_call_timeout=0.1", "--max_restarts=3"};
  WriteProgram("program", "echo $WORLD_SIZE >> $D/starts; exec sleep 100");
  std::vector<std::string> args = Node("1:2", flags, "");
  args.resize(args.size() - 3);
  args.push_back(folder_ + "program");
  Start("a", args);
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "starts") == "1\n"; }));
  args.back() = "/nonexistent/program";
  Start("b", args);
  EXPECT_EQ(Wait("b"), 127);
  EXPECT_THAT(Err("b"), HasSubstr("program \"/nonexistent/program\" not found\n"));
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(ReadFile(folder_ + "starts"), "1\n");
}

TEST_F(TcpNodesTest, ASpareNodeTakesThePlaceOfOneThatLeaves) {
  const std::string script = "echo $RANK >> $D/starts.$NODE; exec sleep 100";
  Start("a", Node("2", {}, script));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }));
  Start("b", Node("2", {}, script));
  ASSERT_TRUE(Soon([&] { return !ReadFile(folder_ + "starts.b").empty(); }));
  Start("c", Node("2", {}, script));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("c"), "spare"); })) << "it has not come yet";
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_TRUE(Soon([&] { return !ReadFile(folder_ + "starts.c").empty(); })) << Err("a") << Err("c");
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("c"), 128 + SIGTERM);
}

TEST_F(TcpNodesTest, AJobOfFixedSizeEndsWhenANodeLeaves) {
  Start("a", Node("2", {}, kSleeps));
  Start("b", Node("2", {}, kSleeps));
  AwaitPid(folder_ + "pid.0");
  AwaitPid(folder_ + "pid.1");
  Signal("b", SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_THAT(Err("a"), HasSubstr(" left the job: it received signal 15 (SIGTERM)\n"));
}

TEST_F(TcpNodesTest, WithoutTheNodeThatServesTheOthersEnd) {
  Start("a", Node("1:2", {"--max_restarts=3"}, kSleeps));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 1 to 2 nodes"); }));
  Start("b", Node("1:2", {"--max_restarts=3"}, kSleeps));
  const pid_t ranks[] = {AwaitPid(folder_ + "pid.0"), AwaitPid(folder_ + "pid.1")};
  Signal("a", SIGKILL);
  EXPECT_EQ(Wait("b"), 1);
  EXPECT_THAT(Err("b"), HasSubstr(absl::StrCat("the launcher at 127.0.0.1:", port_, " is gone")));
  for (const pid_t rank : ranks) EXPECT_TRUE(Soon([&] { return Gone(rank); }));
}

TEST_F(TcpNodesTest, TeedOutputDoesNotMakeTheLauncherGrow) {
  const std::string script = R"([ $RANK = 1 ] && exit 0; grep VmHWM /proc/$PPID/status > $D/before
      yes "0123456789 0123456789 0123456789" | head -c 50000000; grep VmHWM /proc/$PPID/status > $D/after)";
  for (const char* name : {"a", "b"}) {
    Start(name, Node("2", {"--tee=3", absl::StrCat("--log-dir=", folder_, "logs.", name)}, script));
  }
  for (const char* name : {"a", "b"}) EXPECT_EQ(Wait(name), 0) << Err(name);
  // The prefix adds 11 bytes to each line of 33 bytes.
  EXPECT_GT(Out("a").size() + Out("b").size(), 65000000);
  EXPECT_GT(KibibytesIn(folder_ + "before"), 1000);
  EXPECT_LT(KibibytesIn(folder_ + "after") - KibibytesIn(folder_ + "before"), 8 << 10);
  std::filesystem::remove_all(folder_);
}

TEST_F(TcpNodesTest, BytesOfStrangersChangeNothing) {
  Start("a", Node("2", {}, "true"));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("a"), "1 of 2 nodes"); }));
  for (int i = 0; i < 300; ++i) {
    const std::string bytes(1 + 37 * i % 5000, static_cast<char>(i));
    const std::string command = absl::StrCat("exec 3<>/dev/tcp/127.0.0.1/", port_, "; head -c ", bytes.size(),
                                             i % 2 == 0 ? " /dev/urandom" : " /dev/zero", " >&3");
    ASSERT_EQ(system(absl::StrCat("bash -c '", command, "' 2> /dev/null").c_str()) & 0xff00, 0);
  }
  Start("b", Node("2", {}, "true"));
  EXPECT_EQ(Wait("a"), 0) << Err("a");
  EXPECT_EQ(Wait("b"), 0) << Err("b");
}

TEST_F(TcpNodesTest, OneNodeNeedsNoEndpoint) {
  Start("a", {"--rdzv_backend=c10d", "--nnodes=1", "--nproc_per_node=2", "sh", "-c", "echo $WORLD_SIZE"});
  EXPECT_EQ(Wait("a"), 0);
  EXPECT_EQ(Out("a"), "2\n2\n");
}

TEST_F(TcpNodesTest, OneNodeStartsAtOnceAtPort0AndAlone) {
  for (const char* endpoint : {"localhost:0", ":0", "127.0.0.1:0"}) {
    unlink((folder_ + "a.out").c_str());
    Start("a", {"--rdzv-backend=c10d", "--nnodes=1", "--rdzv-endpoint", endpoint, "sh", "-c", "echo $WORLD_SIZE"});
    EXPECT_EQ(Wait("a"), 0);
    EXPECT_EQ(Out("a"), "1\n") << endpoint;
    EXPECT_EQ(Err("a"), "");
  }
  std::vector<std::string> alone = Node("1", {"--rdzv_conf=is_host=false", "--standalone"}, "true");
  Start("a", alone);
  EXPECT_EQ(Wait("a"), 0);
  EXPECT_EQ(Err("a"),
            absl::StrCat("launch: --rdzv_endpoint=127.0.0.1:", port_, " is not used, since --standalone is given\n"));
}

TEST_F(TcpNodesTest, LaunchersWithoutANumberOfNodesDoNotStartSeparateJobs) {
  const auto node = [&](const std::string& job) {
    return std::vector<std::string>{"--rdzv_backend=c10d",
                                    absl::StrCat("--rdzv_endpoint=127.0.0.1:", port_),
                                    absl::StrCat("--rdzv_id=", job),
                                    "bash",
                                    "-c",
                                    "echo $WORLD_SIZE > $D/starts.$NODE; until [ -e $D/end ]; do sleep 0.01; done"};
  };
  Start("a", node("job"));
  ASSERT_TRUE(Soon([&] { return ReadFile(folder_ + "starts.a") == "1\n"; })) << Err("a");
  EXPECT_EQ(Err("a"), "launch: --rdzv_backend=c10d is taken as tcp: a torchrun cannot meet launchers there\n");
  Start("b", node("job"));
  Start("c", node("other"));
  EXPECT_NE(Wait("c"), 0);
  EXPECT_THAT(Err("c"), HasSubstr("the job there has the id \"job\", not \"other\""));
  ASSERT_TRUE(Soon([&] { return absl::StrContains(Err("b"), "this one waits as a spare"); })) << Err("b");
  ASSERT_EQ(system(absl::StrCat("touch ", folder_, "end").c_str()), 0);
  EXPECT_EQ(Wait("a"), 0) << Err("a");
  EXPECT_EQ(Wait("b"), 0) << Err("b");
  for (const char* name : {"b", "c"}) EXPECT_EQ(ReadFile(absl::StrCat(folder_, "starts.", name)), "") << name;
}

}  // namespace
}  // namespace lockstep::launch
