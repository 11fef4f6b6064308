// Ranks as threads whose identities say that they run on several hosts: what crosses them goes over the loopback.

#ifndef LOCKSTEP_COMM_HIERARCHICAL_TESTING_SIMULATED_HOSTS_H_
#define LOCKSTEP_COMM_HIERARCHICAL_TESTING_SIMULATED_HOSTS_H_

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/backend.h"

namespace lockstep::comm::hierarchical::testing {

// The context of a rank, without a store. hosts[r] is the host of rank r.
BackendContext ContextOf(const std::vector<int>& hosts, int rank);

// Runs body(backend) on a thread for each rank, with the hierarchical backend. Returns the first error of any rank; an
// exception becomes a status. Backends are destroyed after every body has returned. By default the ranks meet before.
absl::Status RunOn(const std::vector<int>& hosts, const std::function<void(c10d::Backend&)>& body,
                   bool meet_at_the_end = true);

}  // namespace lockstep::comm::hierarchical::testing

#endif  // LOCKSTEP_COMM_HIERARCHICAL_TESTING_SIMULATED_HOSTS_H_
