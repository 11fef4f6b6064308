#include "lockstep/launch/cpu/cpu_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {
namespace {

template <typename... Parts>
absl::Status Bad(NumaBinding binding, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat("numa_binding=", NameOf(binding), ": ", parts...));
}

// The CPUs of the node, by what `key` gives for them.
std::map<int, std::set<int>> Groups(const std::vector<Cpu>& cpus, int node, int Cpu::*key) {
  std::map<int, std::set<int>> groups;
  for (const Cpu& cpu : cpus) {
    if (cpu.node == node) groups[cpu.*key].insert(cpu.number);
  }
  return groups;
}

std::set<int> CpusOfNode(const std::vector<Cpu>& cpus, int node) {
  std::set<int> found;
  for (const Cpu& cpu : cpus) {
    if (cpu.node == node) found.insert(cpu.number);
  }
  return found;
}

std::set<int> CpusOfSocket(const std::vector<Cpu>& cpus, int node) {
  std::set<int> sockets, found;
  for (const Cpu& cpu : cpus) {
    if (cpu.node == node) sockets.insert(cpu.socket);
  }
  for (const Cpu& cpu : cpus) {
    if (sockets.count(cpu.socket) != 0) found.insert(cpu.number);
  }
  return found;
}

// Returns the cores of the node that belong to its rank `index`, of `count` ranks.
absl::StatusOr<std::set<int>> Share(const std::vector<Cpu>& cpus, int node, int index, int count) {
  const std::map<int, std::set<int>> cores = Groups(cpus, node, &Cpu::core);
  const int size = static_cast<int>(cores.size()) / count, left_over = static_cast<int>(cores.size()) % count;
  if (size == 0) {
    return Bad(NumaBinding::kExclusive, "NUMA node ", node, " has ", cores.size(),
               cores.size() == 1 ? " core" : " cores", " for ", count, " ranks");
  }
  const int begin = index * size + std::min(index, left_over), end = begin + size + (index < left_over ? 1 : 0);
  std::set<int> share;
  for (auto core = std::next(cores.begin(), begin); core != std::next(cores.begin(), end); ++core) {
    share.insert(core->second.begin(), core->second.end());
  }
  return share;
}

absl::StatusOr<std::set<int>> CoreComplex(const std::vector<Cpu>& cpus, int node, int index) {
  const std::map<int, std::set<int>> groups = Groups(cpus, node, &Cpu::cache);
  if (groups.count(-1) != 0) {
    return Bad(NumaBinding::kCoreComplex, "/sys does not say with which others CPU ", *groups.at(-1).begin(),
               " shares a cache");
  }
  std::vector<std::set<int>> complexes;
  for (const auto& [cache, members] : groups) complexes.push_back(members);
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return complexes[index % complexes.size()];
}

}  // namespace

std::string NameOf(NumaBinding binding) {
  switch (binding) {
    case NumaBinding::kNone:
      return "none";
    case NumaBinding::kNode:
      return "node";
    case NumaBinding::kSocket:
      return "socket";
    case NumaBinding::kExclusive:
      return "exclusive";
    case NumaBinding::kCoreComplex:
      return "core-complex";
  }
  return "";
}

std::vector<int> SpreadOverNodes(const std::vector<Cpu>& cpus, int ranks) {
  std::set<std::pair<int, int>> cores;  // (node, core)
  for (const Cpu& cpu : cpus) cores.emplace(cpu.node, cpu.core);
  const std::vector<std::pair<int, int>> ordered(cores.begin(), cores.end());
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    nodes.push_back(ordered[int64_t{rank} * static_cast<int64_t>(ordered.size()) / ranks].first);
  }
  return nodes;
}

absl::StatusOr<std::vector<std::set<int>>> PlanCpus(NumaBinding binding, const std::vector<Cpu>& cpus,
                                                    const std::vector<int>& nodes) {
  std::vector<std::set<int>> plan;
  std::map<int, int> ranks_before;  // by node
  for (int rank = 0; rank < nodes.size(); ++rank) {
    const int node = nodes[rank];
    std::set<int> chosen = CpusOfNode(cpus, node);
    if (chosen.empty()) {
      return Bad(binding, "local rank ", rank, " belongs to NUMA node ", node, ", which has no CPU that this process ",
                 "may use");
    }
    const int index = ranks_before[node]++;
    if (binding == NumaBinding::kSocket) chosen = CpusOfSocket(cpus, node);
    if (binding == NumaBinding::kExclusive) {
      const int count = static_cast<int>(std::count(nodes.begin(), nodes.end(), node));
      LOCKSTEP_ASSIGN_OR_RETURN(chosen, Share(cpus, node, index, count));
    }
    if (binding == NumaBinding::kCoreComplex) {
      LOCKSTEP_ASSIGN_OR_RETURN(chosen, CoreComplex(cpus, node, index));
    }
    plan.push_back(std::move(chosen));
  }
  return plan;
}

absl::StatusOr<std::vector<std::set<int>>> CpusOfRanks(NumaBinding binding, int ranks, const char* visible) {
  if (binding == NumaBinding::kNone) return std::vector<std::set<int>>();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::set<int> allowed, AllowedCpus());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Cpu> cpus, ReadCpus("", allowed));
  if (cpus.empty()) return Bad(binding, "/sys knows none of the CPUs ", CpuListOf(allowed), " of this process");
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int> nodes, GpuNodes("", visible));
  if (nodes.size() < ranks) nodes = SpreadOverNodes(cpus, ranks);
  nodes.resize(ranks);
  return PlanCpus(binding, cpus, nodes);
}

}  // namespace lockstep::launch
