#include "lockstep/launch/process/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::IsEmpty;

// A script with a child, which has a child in another session. All write their pids to files.
class DescendantsTest : public ::testing::Test {
 protected:
  DescendantsTest() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    script_ = fork();
    if (script_ != 0) return;
    const std::string command = absl::StrCat("cd ", folder_, R"(
        sh -c 'setsid sh -c "echo \$\$ > c; exec sleep 1000" & echo $$ > b; wait' & echo $$ > a; wait)");
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  ~DescendantsTest() override {
    EndDescendants({}, absl::Seconds(10));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  std::set<pid_t> Pids() const {
    return {testing::AwaitPid(folder_ + "a"), testing::AwaitPid(folder_ + "b"), testing::AwaitPid(folder_ + "c")};
  }

  const std::string folder_ = testing::NewFolder();
  pid_t script_;
};

TEST_F(DescendantsTest, AreTheSameInBothSources) {
  const std::set<pid_t> pids = Pids();
  for (const auto source : {ProcessTree::Source::kChildrenFiles, ProcessTree::Source::kAllProcesses}) {
    std::set<pid_t> found;
    ForEachDescendant(getpid(), {}, ProcessTree(source), [&](pid_t pid, UniqueFd) { found.insert(pid); });
    EXPECT_EQ(found, pids);
    found.clear();
    ForEachDescendant(getpid(), {script_}, ProcessTree(source), [&](pid_t pid, UniqueFd) { found.insert(pid); });
    EXPECT_THAT(found, IsEmpty());
  }
}

TEST_F(DescendantsTest, OfAnEndedParentAreEnded) {
  const std::set<pid_t> pids = Pids();
  kill(script_, SIGKILL);
  EXPECT_THAT(EndDescendants({}, absl::Seconds(10)), IsEmpty());
  for (const pid_t pid : pids) EXPECT_TRUE(testing::Gone(pid)) << pid;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child has not been reaped";
}

TEST_F(DescendantsTest, AreNotTouchedIfTheirAncestorIsSpared) {
  const std::set<pid_t> pids = Pids();
  EXPECT_THAT(EndDescendants({script_}, absl::Seconds(10)), IsEmpty());
  for (const pid_t pid : pids) EXPECT_FALSE(testing::Gone(pid)) << pid;
}

}  // namespace
}  // namespace lockstep::launch
