// Tests with several ranks, as threads of the test itself, over a real backend.

#ifndef LOCKSTEP_COMM_TESTING_INIT_RANKS_H_
#define LOCKSTEP_COMM_TESTING_INIT_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::testing {

// Calls InitProcessGroup(options) on `world_size` threads, which meet at a file of their own (options' rank, world_size
// and init_method are set here), then body(group) on each, and returns what each rank's returned; what it threw is its
// status too. Groups are destroyed when every body has returned, so no rank sees another leave.
std::vector<absl::Status> InitRanks(const InitOptions& options, int world_size,
                                    const std::function<absl::Status(ProcessGroup& group)>& body);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_INIT_RANKS_H_
