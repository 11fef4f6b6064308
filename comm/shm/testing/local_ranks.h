// Ranks of a communicator as threads of a test, over one real mapping.

#ifndef LOCKSTEP_COMM_SHM_TESTING_LOCAL_RANKS_H_
#define LOCKSTEP_COMM_SHM_TESTING_LOCAL_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/shm/communicator.h"

namespace lockstep::comm::shm::testing {

// An Exchange between the threads of one process. Copies share its keys.
Exchange LocalExchange();

// Runs body(communicator) on `size` threads and returns the results, by rank.
std::vector<absl::Status> RunLocalRanks(int size, const std::function<absl::Status(Communicator&)>& body);

// The first error of any rank, with the rank's number.
absl::Status RunLocalRanksOk(int size, const std::function<absl::Status(Communicator&)>& body);

}  // namespace lockstep::comm::shm::testing

#endif  // LOCKSTEP_COMM_SHM_TESTING_LOCAL_RANKS_H_
