#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_TOPOLOGY_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_TOPOLOGY_H_

#include <vector>

#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm::hierarchical::internal {

// How the ranks of a group lie on hosts, seen from one of them.
struct Topology {
  std::vector<std::vector<int>> hosts;  // the ranks of each host, in order; hosts in the order of their first ranks
  int host = 0;                         // this rank's
  int local_rank = 0;                   // its place in hosts[host]

  const std::vector<int>& local_ranks() const { return hosts[host]; }
  // Returns whether every host has as many ranks.
  bool even() const;
  // The ranks that have this rank's place on their hosts. If hosts have different sizes, the first rank of each host;
  // this rank may not be among them then.
  std::vector<int> column() const;
};

// Requires: 0 <= rank < ranks.size().
Topology TopologyOf(const std::vector<RankIdentity>& ranks, int rank);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_TOPOLOGY_H_
