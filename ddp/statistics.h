// What a step of DistributedDataParallel did: when each bucket was ready, started and done, and what was found in it.

#ifndef LOCKSTEP_DDP_STATISTICS_H_
#define LOCKSTEP_DDP_STATISTICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::ddp {

// Times are in nanoseconds since the step's forward began, -1 for what did not happen. On a GPU they are those at which
// it came to what the host had enqueued; where the parameters are on several GPUs, those at which the host did.
struct BucketStatistics {
  int index = 0;
  int64_t bytes = 0;
  std::shared_ptr<const std::vector<std::string>> parameters;  // their names
  int64_t ready = -1;                                          // its last gradient was in
  // Its all_reduce, or communication hook, began; on a GPU it could, and does when the collective before it is over.
  int64_t start = -1;
  // Its result was there. That of a hook on a GPU: for the stream that computes, which is after the last gradient.
  int64_t end = -1;
};

struct NonFiniteGradient {
  int rank = -1;  // -1: each rank's gradient was finite, their sum was not
  std::string parameter;
};

struct StepStatistics {
  int rank = 0;
  int64_t step = 0;            // counted from 0: forward passes that were averaged
  int64_t unix_time = 0;       // of the forward's begin, in nanoseconds since 1970
  int64_t compute_begin = -1;  // what forward gets from other ranks was there
  int64_t forward_end = -1;
  int64_t backward_begin = -1;            // the first gradient was in
  int64_t last_gradient = -1;             // and the last
  int64_t end = -1;                       // backward had averaged gradients
  std::vector<BucketStatistics> buckets;  // in the order in which they are reduced
  std::vector<NonFiniteGradient> non_finite;

  int64_t bytes() const;

  // The share of the time in which any bucket was being reduced that came before the last gradient, when this rank
  // computed meanwhile; 0 to 1, and 0 where nothing was reduced.
  double HiddenShare() const;
};

// "rank 0 step 12: 84.1 ms, forward 24.2, backward 57.0; 3 buckets, 46.8 MB reduced in 9.1 ms, 78 % hidden".
std::string Summary(const StepStatistics& statistics);

// Writes the steps, of any ranks, as a file in the Chrome trace format, which Perfetto and chrome://tracing open: a
// process a rank, with a row for forward and backward and rows for the buckets. If it cannot be written,
// the status has what the system said, under absl::ErrnoToStatus's code.
absl::Status WriteChromeTrace(absl::string_view path, const std::vector<StepStatistics>& steps);

// The same as a string.
std::string ChromeTrace(const std::vector<StepStatistics>& steps);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_STATISTICS_H_
