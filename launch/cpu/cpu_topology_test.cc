#include "lockstep/launch/cpu/cpu_topology.h"

#include "gtest/gtest.h"
#include "lockstep/launch/testing/fake_sysfs.h"

namespace lockstep::launch {
namespace {

using testing::FakeSysfs;

TEST(ParseCpuList, ReadsTheKernelsLists) {
  EXPECT_EQ(*ParseCpuList("0-2,8\n"), (std::set<int>{0, 1, 2, 8}));
  EXPECT_EQ(*ParseCpuList(""), std::set<int>()) << "a node with memory alone";
  for (const char* list : {"a", "1-", "2-1", "1-2-3", "-1", "1 2", "0-9999999"}) {
    EXPECT_EQ(ParseCpuList(list), std::nullopt) << list;
  }
  EXPECT_EQ(CpuListOf({0, 1, 2, 8}), "0-2,8");
  EXPECT_EQ(CpuListOf({5}), "5");
  EXPECT_EQ(CpuListOf({}), "");
}

TEST(ReadCpus, ReadsNodeSocketCoreAndCache) {
  FakeSysfs host;
  host.AddCpu(2, 1, 3, "2,6", "0-7");
  host.AddCpu(6, 1, 3, "2,6", "0-7");
  const auto cpus = ReadCpus(host.root(), {0, 6});
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  ASSERT_EQ(cpus->size(), 1) << "CPU 0 is not there, and CPU 2 is not allowed";
  const Cpu& cpu = cpus->front();
  EXPECT_EQ(cpu.number, 6);
  EXPECT_EQ(cpu.node, 1);
  EXPECT_EQ(cpu.socket, 3);
  EXPECT_EQ(cpu.core, 2);
  EXPECT_EQ(cpu.cache, 0) << "the first level, of instructions, is CPU 6's own";
}

TEST(ReadCpus, HasOneNodeWithoutNuma) {
  FakeSysfs host;
  host.AddCpu(1, FakeSysfs::kNoNode, 0, "1", "1");
  host.Write("sys/devices/system/cpu/online", "0-1\n");
  const auto cpus = ReadCpus(host.root(), {1});
  ASSERT_TRUE(cpus.ok()) << cpus.status();
  EXPECT_EQ(cpus->front().node, 0);
}

TEST(ReadCpus, NamesAFileThatIsWrong) {
  FakeSysfs host;
  host.AddCpu(0, 0, 0, "0", "0");
  host.Write("sys/devices/system/cpu/cpu0/topology/physical_package_id", "one\n");
  EXPECT_EQ(ReadCpus(host.root(), {0}).status().message(),
            host.root() + "/sys/devices/system/cpu/cpu0/topology/physical_package_id has \"one\", expected a number");
  host.Write("sys/devices/system/node/node0/cpulist", "0-\n");
  EXPECT_EQ(ReadCpus(host.root(), {0}).status().message(),
            host.root() + "/sys/devices/system/node/node0/cpulist has \"0-\", expected a list of CPUs");
}

TEST(AllowedCpus, AreTheOnesOfThisThread) { EXPECT_FALSE(AllowedCpus()->empty()); }

class GpuNodesTest : public ::testing::Test {
 protected:
  // The GPUs at 1b and dc are on nodes 1 and 0. Beside them are a bridge of NVLink, another vendor's GPU, and a GPU of
  // the host that this container does not have.
  GpuNodesTest() {
    host_.AddPciDevice("0000:dc:00.0", "0x10de", "0x030200", 0);
    host_.AddPciDevice("0000:1b:00.0", "0x10de", "0x030200", 1);
    host_.AddPciDevice("0000:05:00.0", "0x10de", "0x068000", 2);
    host_.AddPciDevice("0000:06:00.0", "0x1002", "0x030000", 3);
  }
  void AddDriver(const std::string& address, int minor, const std::string& uuid) {
    host_.Write("proc/driver/nvidia/gpus/" + address + "/information",
                "Model: \t\t A\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " + std::to_string(minor) + "\n");
  }
  std::vector<int> Nodes(const char* visible) const { return *GpuNodes(host_.root(), visible); }

  FakeSysfs host_;
};

TEST_F(GpuNodesTest, AreInTheOrderOfPciAddresses) {
  EXPECT_EQ(Nodes(nullptr), (std::vector<int>{1, 0}));
  EXPECT_EQ(Nodes("1, 0"), (std::vector<int>{0, 1}));
  EXPECT_EQ(Nodes("1,-1,0"), (std::vector<int>{0}));
  EXPECT_EQ(Nodes(""), std::vector<int>());
}

TEST_F(GpuNodesTest, AreZeroWhereTheHostHasOneNode) {
  host_.AddPciDevice("0000:1b:00.0", "0x10de", "0x030200", -1);
  EXPECT_EQ(Nodes(nullptr), (std::vector<int>{0, 0}));
}

TEST_F(GpuNodesTest, AreOfTheGpusOfThisContainer) {
  AddDriver("0000:dc:00.0", 4, "GPU-aa-1");
  host_.Write("dev/nvidia4", "");
  EXPECT_EQ(Nodes(nullptr), (std::vector<int>{0})) << "the driver's folder has one GPU";
  AddDriver("0000:1b:00.0", 0, "GPU-ab-2");
  EXPECT_EQ(Nodes(nullptr), (std::vector<int>{0})) << "/dev has one GPU";
  host_.Write("dev/nvidia0", "");
  EXPECT_EQ(Nodes(nullptr), (std::vector<int>{1, 0}));
  EXPECT_EQ(Nodes("GPU-aa,GPU-ab-2"), (std::vector<int>{0, 1}));
}

TEST_F(GpuNodesTest, NeedsTheGpusThatAreNamed) {
  for (const char* name : {"2", "GPU-cc", "MIG-1"}) {
    EXPECT_EQ(GpuNodes(host_.root(), name).status().message(),
              std::string("CUDA_VISIBLE_DEVICES=") + name + " names \"" + name +
                  "\", which is not one of the 2 GPUs whose NUMA node is known");
  }
  EXPECT_EQ(GpuNodes(FakeSysfs().root(), "0")->size(), 0) << "without GPUs nothing is bound to them";
}

}  // namespace
}  // namespace lockstep::launch
