// launch status and launch drain, with jobs of several nodes.

#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/testing/nodes.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::ContainsRegex;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kScript[] = "echo $WORLD_SIZE $RANK >> $D/starts.$NODE; exec sleep 200";

class NodesStatusTest : public testing::NodesTest {
 protected:
  NodesStatusTest() : port_(*FreePort()) {}

  std::vector<std::string> Node(const std::string& nnodes, const std::string& endpoint, int ranks) {
    return {absl::StrCat("--nnodes=", nnodes),
            "--rdzv_backend=tcp",
            absl::StrCat("--rdzv_endpoint=", endpoint),
            absl::StrCat("--nproc_per_node=", ranks),
            "--rdzv_conf=last_call_timeout=20",
            "--max_restarts=3",
            "bash",
            "-c",
            kScript};
  }

  // Runs `launch args...` and returns its exit code. Its output is answer_.
  int Ask(const std::vector<std::string>& args) {
    const std::string name = absl::StrCat("ask", ++asked_);
    Start(name, args);
    const int code = Wait(name);
    answer_ = Out(name) + Err(name);
    return code;
  }

  bool Shows(const std::string& node, const std::string& text) {
    return Eventually(
        [&] {
          return Ask({"status", absl::StrCat(PidOf(node))}) == 0 && absl::StrContains(answer_, text);
        },
        absl::Seconds(60));
  }

  const int port_;
  int asked_ = 0;
  std::string answer_;
};

TEST_F(NodesStatusTest, EachNodeShowsAllHostsAndItsOwnRanks) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", port_);
  Start("a", Node("2", endpoint, 2));
  ASSERT_TRUE(Shows("a", "forming for")) << answer_;
  Start("b", Node("2", endpoint, 1));
  for (const char* node : {"a", "b"}) {
    ASSERT_TRUE(Started(node, 3)) << Err(node);
    ASSERT_TRUE(Shows(node, "2 of 2 hosts: ")) << answer_;
    EXPECT_THAT(answer_, HasSubstr("running for "));
    EXPECT_THAT(answer_, HasSubstr("generation 1, 0 of 3 restarts"));
    EXPECT_THAT(answer_, HasSubstr(" (127.0.0.1) rank"));
  }
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("a")), "127.0.0.1"}), 1);
  EXPECT_THAT(answer_, HasSubstr("2 nodes are called 127.0.0.1: hosts "));
  EXPECT_THAT(answer_, HasSubstr("; name one by its address, or run launch drain on its host"));
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("a")), "nowhere"}), 1);
  EXPECT_THAT(answer_, HasSubstr("no node is called nowhere; the job has hosts "));
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("b"))}), 0) << answer_;
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM) << "the job needs both";
}

TEST_F(NodesStatusTest, AnyHostTakesAnotherOneOut) {
  MakeHosts(3);
  if (!hosts_) return;
  for (const char* node : {"0", "1", "2"}) StartOn(node[0] - '0', node, Node("1:3", hosts_->Address(0), 1));
  for (const char* node : {"0", "1", "2"}) ASSERT_TRUE(Started(node, 3)) << Err(node);
  ASSERT_TRUE(Shows("1", absl::StrCat(" (", hosts_->Address(2), ") rank"))) << answer_;
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("1")), hosts_->Address(2)}), 0) << answer_;
  EXPECT_THAT(answer_, MatchesRegex(absl::StrCat("launch: host ", hosts_->Address(2),
                                                 " is asked to leave the job; its ranks have 2s to end\n"
                                                 "launch: it has left after [0-9.]+m?s\n")));
  EXPECT_EQ(Wait("2"), 128 + SIGTERM);
  EXPECT_THAT(Err("2"), HasSubstr("launch: the launcher was drained\n"));
  for (const char* node : {"0", "1"}) {
    EXPECT_TRUE(Started(node, 2)) << Err(node);
    EXPECT_THAT(Err(node), HasSubstr(" left the job: it was drained\n"));
  }
  EXPECT_TRUE(Shows("0", "generation 2, 0 of 3 restarts")) << answer_ << ": a drain costs no restart";
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("1")), hosts_->Address(0)}), 0) << "the host that serves the others";
  EXPECT_EQ(Wait("0"), 128 + SIGTERM);
  EXPECT_EQ(Wait("1"), 128 + SIGTERM);
}

TEST_F(NodesStatusTest, AnotherNumberOfNodesRestartsTheRanksOnlyIfItMust) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", port_);
  Start("a", Node("2:2", endpoint, 1));
  ASSERT_TRUE(Shows("a", "1 of 2 hosts")) << answer_;
  Start("b", Node("2:2", endpoint, 1));
  for (const char* node : {"a", "b"}) ASSERT_TRUE(Started(node, 2)) << Err(node);
  const std::string a = absl::StrCat(PidOf("a"));
  ASSERT_TRUE(Shows("b", "running for")) << answer_;
  EXPECT_EQ(Ask({"resize", absl::StrCat(PidOf("b")), "1:3"}), 0) << answer_;
  EXPECT_TRUE(Shows("a", "2 of 1 to 3 hosts: ")) << answer_;
  EXPECT_THAT(answer_, HasSubstr("generation 1,")) << "the ranks did not have to start again";
  EXPECT_EQ(Ask({"resize", a, "1"}), 0) << answer_;
  EXPECT_TRUE(Shows("a", "generation 2, 0 of 3 restarts")) << answer_;
  EXPECT_THAT(answer_, HasSubstr("1 of 1 hosts: "));
  const auto is_spare = [&](const char* node) {
    return Ask({"status", absl::StrCat(PidOf(node))}) == 0 && absl::StrContains(answer_, "job none: spare for ");
  };
  EXPECT_TRUE(Eventually([&] { return is_spare("a") || is_spare("b"); }, absl::Seconds(60))) << answer_;
  EXPECT_THAT(Err("a"), HasSubstr("launch: the job now has at most 1 node\n"));
  EXPECT_EQ(Ask({"resize", a, "2"}), 0) << answer_;
  EXPECT_TRUE(Shows("a", "generation 3,")) << answer_ << ": the node that waited takes part again";
  EXPECT_THAT(answer_, HasSubstr("2 of 2 hosts: "));
  EXPECT_EQ(Ask({"resize", a, "3:2"}), 2);
  EXPECT_THAT(answer_, HasSubstr("resize: expected MIN:MAX, as 2:4, with MIN from 1 to MAX, but found \"3:2\""));
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
}

TEST_F(NodesStatusTest, WhileTheJobFormsAgainALostHostIsNotCounted) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", port_);
  Start("a", Node("2", endpoint, 1));
  ASSERT_TRUE(Shows("a", "1 of 2 hosts\n")) << answer_;
  Start("b", Node("2", endpoint, 1));
  for (const char* node : {"a", "b"}) ASSERT_TRUE(Started(node, 2)) << Err(node);
  Signal("b", SIGKILL);
  ASSERT_TRUE(Shows("a", " lost")) << answer_;
  EXPECT_THAT(answer_, HasSubstr("forming for"));
  EXPECT_THAT(answer_, HasSubstr("  ended TERM "));
  EXPECT_THAT(answer_,
              ContainsRegex("\n1 of 2 hosts: [^,\n]+ (rank 0, [^,\n]+ rank 1 lost|rank 0 lost, [^,\n]+ rank 1)\n"));
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
}

TEST_F(NodesStatusTest, AHostThatIsDrainedByItsNameLeavesAJobThatGoesOn) {
  MakeHosts(2);
  if (!hosts_) return;
  for (const char* node : {"0", "1"}) StartOn(node[0] - '0', node, Node("1:2", hosts_->Address(0), 1));
  for (const char* node : {"0", "1"}) ASSERT_TRUE(Started(node, 2)) << Err(node);
  ASSERT_TRUE(Shows("1", "running for")) << answer_;
  EXPECT_EQ(Ask({"drain", absl::StrCat(PidOf("1")), hosts_->Address(1)}), 0) << answer_;
  EXPECT_THAT(answer_, HasSubstr("launch: it has left after "));
  EXPECT_EQ(Wait("1"), 128 + SIGTERM);
  EXPECT_TRUE(Started("0", 1)) << Err("0");
}

TEST_F(NodesStatusTest, AJobOfOneNodeCanGetMore) {
  const std::string endpoint = absl::StrCat("127.0.0.1:", port_);
  Start("a", Node("1", endpoint, 1));
  ASSERT_TRUE(Started("a", 1)) << Err("a");
  Start("b", Node("1", endpoint, 1));
  EXPECT_TRUE(Shows("b", "job none: spare for ")) << answer_;
  EXPECT_EQ(Ask({"resize", absl::StrCat(PidOf("a")), "1:2"}), 0) << answer_;
  for (const char* node : {"a", "b"}) EXPECT_TRUE(Started(node, 2)) << Err(node);
  Signal("a", SIGTERM);
  EXPECT_EQ(Wait("a"), 128 + SIGTERM);
  EXPECT_EQ(Wait("b"), 128 + SIGTERM);
}

}  // namespace
}  // namespace lockstep::launch
