// Tests with several ranks, as threads of the test, over a real backend.

#ifndef LOCKSTEP_COMM_TESTING_INIT_RANKS_H_
#define LOCKSTEP_COMM_TESTING_INIT_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"

namespace lockstep::comm::testing {

// Calls InitProcessGroup(options) on `world_size` threads, which meet in a new file (this sets the options' rank,
// world_size and init_method). Runs body(group) on each and returns the results by rank; an exception becomes a status.
// Groups are destroyed after every body has returned, so no rank sees another leave.
std::vector<absl::Status> InitRanks(const InitOptions& options, int world_size,
                                    const std::function<absl::Status(ProcessGroup& group)>& body);

// InitRanks() with rank r on the host host_of[r]. The ranks meet at host 0. Each calls before(rank), if given, before
// InitProcessGroup().
std::vector<absl::Status> InitRanksOn(const NetworkHosts& hosts, const std::vector<int>& host_of,
                                      const InitOptions& options,
                                      const std::function<absl::Status(ProcessGroup& group)>& body,
                                      const std::function<void(int rank)>& before = nullptr);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_INIT_RANKS_H_
