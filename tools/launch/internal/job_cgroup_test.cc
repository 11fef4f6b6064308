#include "lockstep/tools/launch/internal/job_cgroup.h"

#include "gtest/gtest.h"

namespace lockstep::launch::internal {
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

}  // namespace
}  // namespace lockstep::launch::internal
