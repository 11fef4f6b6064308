#include "lockstep/base/slurm.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Slurm, FirstHostReadsItsHostLists) {
  const std::pair<const char*, const char*> lists[] = {{"n1", "n1"},
                                                       {"n[001-003,7],m2", "n001"},
                                                       {"m2,n[1-3]", "m2"},
                                                       {"n[7]", "n7"},
                                                       {"c[1,3]-ib", "c1-ib"},
                                                       {"r[2-3]n[08-10]", "r2n08"},
                                                       {"a.b-c_d.example", "a.b-c_d.example"}};
  for (const auto& [list, host] : lists) EXPECT_EQ(FirstSlurmHost(list).value_or("none"), host) << list;
  for (const char* list : {"", ",n1", "n[", "n[]", "n[a]", "n[1x]", "n1]", "n 1"}) {
    EXPECT_EQ(FirstSlurmHost(list), std::nullopt) << list;
  }
}

TEST(Slurm, TasksOnNodeReadsItsRepeats) {
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 0), 2);
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 2), 2);
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 3), 1);
  EXPECT_EQ(SlurmTasksOnNode("2(x3),1", 4), std::nullopt);
  for (const char* list : {"", "x", "2(xx)", "2(x"}) EXPECT_EQ(SlurmTasksOnNode(list, 0), std::nullopt) << list;
}

TEST(Slurm, PortDependsOnTheJobAlone) {
  EXPECT_EQ(SlurmPort("7"), 15007);
  EXPECT_EQ(SlurmPort("1239999"), 24999);
  EXPECT_EQ(SlurmPort("123_4"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
