#include "lockstep/launch/process/job_cgroup.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

constexpr char kHost[] =
    "24 1 0:22 / /sys rw,nosuid - sysfs sysfs rw\n"
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupFolder, IsBelowTheMountPoint) {
  EXPECT_EQ(CgroupFolder(kHost, "0::/user.slice/user-1000.slice/session-3.scope\n"),
            "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope");
}

TEST(CgroupFolder, OfAContainerIsTheMountPoint) { EXPECT_EQ(CgroupFolder(kHost, "0::/\n"), "/sys/fs/cgroup"); }

TEST(CgroupFolder, BesideVersion1IsThatOfVersion2) {
  constexpr char kHybrid[] =
      "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "40 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(CgroupFolder(kHybrid, "4:memory:/a\n1:name=systemd:/b\n0::/c\n"), "/sys/fs/cgroup/unified/c");
}

TEST(CgroupFolder, OfAMountThatShowsAPartIsBelowThatPart) {
  constexpr char kPart[] = "30 24 0:26 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
  EXPECT_EQ(CgroupFolder(kPart, "0::/docker/ab/job\n"), "/sys/fs/cgroup/job");
  EXPECT_EQ(CgroupFolder(kPart, "0::/docker/ab\n"), "/sys/fs/cgroup");
  EXPECT_EQ(CgroupFolder(kPart, "0::/docker/abc\n"), "");
  EXPECT_EQ(CgroupFolder(kPart, "0::/\n"), "");
}

TEST(CgroupFolder, MayHaveSpaces) {
  EXPECT_EQ(CgroupFolder("30 24 0:26 / /mnt/a\\040b rw - cgroup2 none rw\n", "0::/c\n"), "/mnt/a b/c");
}

TEST(CgroupFolder, IsEmptyWithoutVersion2) {
  EXPECT_EQ(CgroupFolder(kHost, "4:memory:/a\n"), "");
  EXPECT_EQ(CgroupFolder("31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw\n", "0::/c\n"), "");
  EXPECT_EQ(CgroupFolder("", ""), "");
}

// In a cgroup of its own, where no other launcher looks.
class CreateJobCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string own =
        CgroupFolder(testing::ReadFile("/proc/self/mountinfo"), testing::ReadFile("/proc/self/cgroup"));
    parent_ = own + "/lockstep-test-XXXXXX";
    if (own.empty() || !mkdtemp(parent_.data())) {
      parent_.clear();
      GTEST_SKIP() << "no cgroup of version 2 can be created here";
    }
  }

  void TearDown() override { RemoveJobCgroup(parent_, absl::Seconds(10)); }

  static bool Exists(const JobCgroup& cgroup) { return access(cgroup.folder.c_str(), F_OK) == 0; }

  std::string parent_;
};

TEST_F(CreateJobCgroupTest, RemovesOnesThatWereLeft) {
  JobCgroup left = CreateJobCgroupIn(parent_);
  ASSERT_TRUE(Exists(left));
  ASSERT_EQ(mkdir((left.folder + "/lockstep-launch-nested").c_str(), 0700), 0);
  ASSERT_EQ(mkdir((parent_ + "/other").c_str(), 0700), 0);
  left.lock = UniqueFd();
  const JobCgroup cgroup = CreateJobCgroupIn(parent_);
  EXPECT_TRUE(Exists(cgroup));
  EXPECT_FALSE(Exists(left));
  EXPECT_EQ(access((parent_ + "/other").c_str(), F_OK), 0) << "somebody else's";
}

TEST_F(CreateJobCgroupTest, LeavesThoseThatAProcessHolds) {
  const JobCgroup waits = CreateJobCgroupIn(parent_);  // as before its ranks start
  JobCgroup runs = CreateJobCgroupIn(parent_);
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  std::ofstream(runs.folder + "/cgroup.procs") << child;
  runs.lock = UniqueFd();
  const JobCgroup cgroup = CreateJobCgroupIn(parent_);
  EXPECT_TRUE(Exists(waits));
  EXPECT_TRUE(Exists(runs));
  KillJobCgroup(runs.folder);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace lockstep::launch
