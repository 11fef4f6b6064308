#include "lockstep/comm/hierarchical/internal/topology.h"

#include <algorithm>

namespace lockstep::comm::hierarchical::internal {

bool Topology::even() const {
  return std::all_of(hosts.begin(), hosts.end(), [&](const auto& ranks) { return ranks.size() == hosts[0].size(); });
}

std::vector<int> Topology::column() const {
  const int place = even() ? local_rank : 0;
  std::vector<int> ranks;
  for (const std::vector<int>& on_host : hosts) ranks.push_back(on_host[place]);
  return ranks;
}

Topology TopologyOf(const std::vector<RankIdentity>& ranks, int rank) {
  Topology topology;
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    const auto same = std::find_if(topology.hosts.begin(), topology.hosts.end(),
                                   [&](const auto& on_host) { return OnOneHost(ranks[on_host[0]], ranks[r]); });
    const auto host = same == topology.hosts.end() ? topology.hosts.insert(same, std::vector<int>()) : same;
    if (r == rank) {
      topology.host = static_cast<int>(host - topology.hosts.begin());
      topology.local_rank = static_cast<int>(host->size());
    }
    host->push_back(r);
  }
  return topology;
}

}  // namespace lockstep::comm::hierarchical::internal
