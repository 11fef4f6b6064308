// The CPUs of this host, from /sys: which share a core, a cache, a NUMA node or a socket.

#ifndef LOCKSTEP_LAUNCH_CPU_CPU_TOPOLOGY_H_
#define LOCKSTEP_LAUNCH_CPU_CPU_TOPOLOGY_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch {

struct Cpu {
  int number = 0;
  int node = 0;    // of NUMA; 0 on a kernel without NUMA
  int socket = 0;  // physical_package_id
  int core = 0;    // the lowest CPU of the same physical core
  int cache = -1;  // the lowest CPU that shares its last-level cache; -1 if /sys does not say
};

// The numbers in a list of the kernel's, such as "0-3,8"; nullopt for no such list.
std::optional<std::set<int>> ParseCpuList(absl::string_view list);

// "0-3,8".
std::string CpuListOf(const std::set<int>& cpus);

// The CPUs on which this thread may run, by its affinity and the cpuset of its cgroup. Offline CPUs are not among them.
absl::StatusOr<std::set<int>> AllowedCpus();

// Reads from <root>/sys the CPUs in `allowed`, by number. `root` is "" on a real host. CPUs that belong to no NUMA node
// are left out. FailedPrecondition, with the file in the message, if a file is missing or has no number.
absl::StatusOr<std::vector<Cpu>> ReadCpus(const std::string& root, const std::set<int>& allowed);

// The NUMA nodes of the NVIDIA GPUs that CUDA shows: GPUs in the order of their PCI addresses, which is CUDA's order if
// all are of one model. GPUs without a file in <root>/dev do not count. `visible` is the value of CUDA_VISIBLE_DEVICES,
// or null: its entries are such numbers or UUIDs, up to one that is "-1". A GPU without a node is on node 0.
// FailedPrecondition, with the entry in the message, if it names no GPU.
absl::StatusOr<std::vector<int>> GpuNodes(const std::string& root, const char* visible);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_CPU_CPU_TOPOLOGY_H_
