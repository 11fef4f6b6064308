// Tests with several ranks, as threads of the test itself.
//
//   TEST(AllReduce, Sums) {
//     EXPECT_OK(testing::RunRanks(2, [](ProcessGroup& group) {
//       at::Tensor x = at::full({3}, group.rank() + 1.0);
//       ...
//     }));
//   }

#ifndef LOCKSTEP_COMM_TESTING_RUN_RANKS_H_
#define LOCKSTEP_COMM_TESTING_RUN_RANKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::testing {

// Runs body(group) on `world_size` threads, each with a group of its own over an in-process store, and returns what
// each rank's returned; what it threw is its status too. When a rank ends, collectives that wait for it fail on the
// others instead of hanging.
std::vector<absl::Status> RunRanks(int world_size, const std::function<absl::Status(ProcessGroup& group)>& body,
                                   absl::Duration timeout = absl::Seconds(30));

// The same for a body that checks with EXPECT; returns the first error of any rank, with the rank's number.
absl::Status RunRanksOk(int world_size, const std::function<void(ProcessGroup& group)>& body);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_RUN_RANKS_H_
