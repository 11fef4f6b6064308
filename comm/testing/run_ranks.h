// Tests with several ranks, as threads of the test.
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

// Runs body(group) on `world_size` threads, each with a separate group over an in-process store. Returns the results by
// rank; an exception becomes a status. When a rank ends, collectives that wait for it fail on the others instead of
// hanging.
std::vector<absl::Status> RunRanks(int world_size, const std::function<absl::Status(ProcessGroup& group)>& body,
                                   absl::Duration timeout = absl::Seconds(30));

// RunRanks() for a body that checks with EXPECT. Returns the first error of any rank, with the rank's number.
absl::Status RunRanksOk(int world_size, const std::function<void(ProcessGroup& group)>& body);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_RUN_RANKS_H_
