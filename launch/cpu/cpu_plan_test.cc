#include "lockstep/launch/cpu/cpu_plan.h"

#include <functional>

#include "gtest/gtest.h"
#include "lockstep/launch/testing/fake_sysfs.h"

namespace lockstep::launch {
namespace {

using testing::FakeSysfs;

// "0-3|4-7": the CPUs of each rank, or the error.
std::string Plan(NumaBinding binding, const std::vector<Cpu>& cpus, const std::vector<int>& nodes) {
  const absl::StatusOr<std::vector<std::set<int>>> plan = PlanCpus(binding, cpus, nodes);
  if (!plan.ok()) return std::string(plan.status().message());
  std::string text;
  for (const std::set<int>& rank : *plan) text += (text.empty() ? "" : "|") + CpuListOf(rank);
  return text;
}

std::vector<Cpu> CpusOf(const FakeSysfs& host, const char* allowed = "0-127") {
  return *ReadCpus(host.root(), *ParseCpuList(allowed));
}

// Two sockets, each with two NUMA nodes of four cores. A core has two threads: 0 and 16, 1 and 17, ...
FakeSysfs TwoSockets() {
  FakeSysfs host;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16, node = core / 4;
    const std::string sharers = CpuListOf({core, core + 16});
    const std::string node_cpus = CpuListOf({4 * node, 4 * node + 1, 4 * node + 2, 4 * node + 3, 4 * node + 16,
                                             4 * node + 17, 4 * node + 18, 4 * node + 19});
    host.AddCpu(cpu, node, core / 8, sharers, node_cpus);
  }
  return host;
}

// One socket and one NUMA node of four chiplets, each with four cores and a cache. CPUs 14 and 15 are offline.
FakeSysfs Chiplets() {
  FakeSysfs host;
  for (int cpu = 0; cpu < 14; ++cpu) {
    const int first = cpu / 4 * 4;
    host.AddCpu(cpu, 0, 0, CpuListOf({cpu}),
                first == 12 ? "12-13" : CpuListOf({first, first + 1, first + 2, first + 3}));
  }
  return host;
}

TEST(PlanCpus, BindsToTheNode) {
  const FakeSysfs host = TwoSockets();
  EXPECT_EQ(Plan(NumaBinding::kNode, CpusOf(host), {0, 0, 3}), "0-3,16-19|0-3,16-19|12-15,28-31");
}

TEST(PlanCpus, BindsToTheSocketOfTheNode) {
  const FakeSysfs host = TwoSockets();
  EXPECT_EQ(Plan(NumaBinding::kSocket, CpusOf(host), {1, 2}), "0-7,16-23|8-15,24-31");
}

TEST(PlanCpus, DividesTheCoresOfANodeAmongItsRanks) {
  const FakeSysfs host = TwoSockets();
  EXPECT_EQ(Plan(NumaBinding::kExclusive, CpusOf(host), {0, 2, 0, 0}), "0-1,16-17|8-11,24-27|2,18|3,19")
      << "both threads of a core go to one rank, and the first rank gets the core that is left over";
  EXPECT_EQ(Plan(NumaBinding::kExclusive, CpusOf(host), {1, 1, 1, 1, 1}),
            "numa_binding=exclusive: NUMA node 1 has 4 cores for 5 ranks");
}

TEST(PlanCpus, TakesTurnsAtTheCoreComplexesOfANode) {
  EXPECT_EQ(Plan(NumaBinding::kCoreComplex, CpusOf(Chiplets()), {0, 0, 0, 0, 0}), "0-3|4-7|8-11|12-13|0-3")
      << "CPUs 14 and 15 are offline, so the last complex is the smallest";
  EXPECT_EQ(Plan(NumaBinding::kCoreComplex, CpusOf(Chiplets(), "1-2,4-13"), {0, 0, 0, 0}), "4-7|8-11|1-2|12-13")
      << "complexes with more CPUs come first";
}

TEST(PlanCpus, KeepsToTheCpusThatAreAllowed) {
  const std::vector<Cpu> cpus = CpusOf(TwoSockets(), "1,2,17,20-31");
  EXPECT_EQ(Plan(NumaBinding::kNode, cpus, {0, 1}), "1-2,17|20-23");
  EXPECT_EQ(Plan(NumaBinding::kSocket, cpus, {0}), "1-2,17,20-23");
  EXPECT_EQ(Plan(NumaBinding::kExclusive, cpus, {0, 0}), "1,17|2") << "two cores, one of them with one thread";
  EXPECT_EQ(Plan(NumaBinding::kNode, CpusOf(TwoSockets(), "0-3"), {0, 1}),
            "numa_binding=node: local rank 1 belongs to NUMA node 1, which has no CPU that this process may use");
}

TEST(PlanCpus, NeedsACacheForACoreComplex) {
  FakeSysfs host;
  host.AddCpu(0, 0, 0, "0", "0");
  host.AddCpu(1, 0, 0, "1", "");
  EXPECT_EQ(Plan(NumaBinding::kCoreComplex, CpusOf(host), {0}),
            "numa_binding=core-complex: /sys does not say with which others CPU 1 shares a cache");
  EXPECT_EQ(Plan(NumaBinding::kNode, CpusOf(host), {0}), "0-1");
}

TEST(SpreadOverNodes, GivesNeighboursOneNode) {
  const std::vector<Cpu> cpus = CpusOf(TwoSockets());
  EXPECT_EQ(SpreadOverNodes(cpus, 1), (std::vector<int>{0}));
  EXPECT_EQ(SpreadOverNodes(cpus, 2), (std::vector<int>{0, 2})) << "one a socket";
  EXPECT_EQ(SpreadOverNodes(cpus, 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(SpreadOverNodes(cpus, 8), (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(SpreadOverNodes(CpusOf(Chiplets()), 2), (std::vector<int>{0, 0}));
}

TEST(SpreadOverNodes, CountsTheCoresThatAreAllowed) {
  const std::vector<Cpu> cpus = CpusOf(TwoSockets(), "0-2,16-18,4,20");  // three cores of node 0, and one of node 1
  EXPECT_EQ(SpreadOverNodes(cpus, 4), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(Plan(NumaBinding::kExclusive, cpus, SpreadOverNodes(cpus, 4)), "0,16|1,17|2,18|4,20");
  EXPECT_EQ(Plan(NumaBinding::kExclusive, cpus, SpreadOverNodes(cpus, 3)), "0,16|1,17|2,18");
}

TEST(CpusOfRanks, AreCpusOfThisHost) {
  const std::set<int> allowed = *AllowedCpus();
  const auto plan = CpusOfRanks(NumaBinding::kNode, 3, "");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->size(), 3);
  for (const std::set<int>& rank : *plan) {
    EXPECT_FALSE(rank.empty());
    for (const int cpu : rank) EXPECT_EQ(allowed.count(cpu), 1);
  }
  EXPECT_TRUE(CpusOfRanks(NumaBinding::kNone, 3, "")->empty());
}

}  // namespace
}  // namespace lockstep::launch
