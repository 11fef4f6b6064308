// Decides on which CPUs each local rank runs, for LaunchOptions::numa_binding. Only CpusOfRanks() reads this host; for
// the other functions the topology is an argument.

#ifndef LOCKSTEP_LAUNCH_CPU_CPU_PLAN_H_
#define LOCKSTEP_LAUNCH_CPU_CPU_PLAN_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/launch/cpu/cpu_topology.h"
#include "lockstep/launch/job/launch_options.h"

namespace lockstep::launch {

// The name of the binding on the command line: "core-complex".
std::string NameOf(NumaBinding binding);

// The NUMA node of each of `ranks` local ranks that use no GPU: neighbours share a node, and a node gets ranks in
// proportion to its cores among `cpus`, which is not empty.
std::vector<int> SpreadOverNodes(const std::vector<Cpu>& cpus, int ranks);

// The CPUs of each local rank. `nodes` has the NUMA node of each. kNode: all CPUs of the node. kSocket: all CPUs of the
// socket that has the node. kExclusive: the cores of the node are divided among its ranks, and the first ranks get
// what is left over. kCoreComplex: the CPUs of the node that share one last-level cache. The ranks of a node take turns
// at its caches, and caches with more CPUs come first. FailedPrecondition if a rank would get no CPU, or if a cache
// is not known.
absl::StatusOr<std::vector<std::set<int>>> PlanCpus(NumaBinding binding, const std::vector<Cpu>& cpus,
                                                    const std::vector<int>& nodes);

// The CPUs of each local rank on this host; empty if the binding is kNone. Rank 0 uses the first visible GPU, and so
// on. With fewer visible GPUs than ranks, or without GPUs, ranks are spread over the nodes. `visible` as in GpuNodes().
absl::StatusOr<std::vector<std::set<int>>> CpusOfRanks(NumaBinding binding, int ranks, const char* visible);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_CPU_CPU_PLAN_H_
