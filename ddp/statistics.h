// Statistics of a step of DistributedDataParallel: when each bucket was ready, started and done, and which gradients
// were not finite.

#ifndef LOCKSTEP_DDP_STATISTICS_H_
#define LOCKSTEP_DDP_STATISTICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::ddp {

// Times are in nanoseconds since the start of the step's forward; -1 if the event did not happen. On a GPU they are the
// times at which it reached the work that the host had enqueued. If the parameters are on several GPUs, they are host
// times.
struct BucketStatistics {
  int index = 0;
  int64_t bytes = 0;
  std::shared_ptr<const std::vector<std::string>> parameters;  // their names
  int64_t ready = -1;                                          // when its last gradient was available
  // When its all_reduce or communication hook began. On a GPU: when it could begin. It does so once the previous
  // collective is done.
  int64_t start = -1;
  // When its result was available. For a hook on a GPU: for the computing stream, which is after the last gradient.
  int64_t end = -1;
};

struct NonFiniteGradient {
  int rank = -1;  // -1: see virtual_rank
  std::string parameter;
  int virtual_rank = -1;  // with Options::virtual_ranks. Both are -1: each gradient was finite, but their sum was not.
};

struct StepStatistics {
  int rank = 0;
  int64_t step = 0;            // number of previous averaged forward passes
  int64_t unix_time = 0;       // start of forward, in nanoseconds since 1970
  int64_t compute_begin = -1;  // forward had received the data of other ranks
  int64_t forward_end = -1;
  int64_t backward_begin = -1;            // the first gradient was available
  int64_t last_gradient = -1;             // the last gradient was available
  int64_t end = -1;                       // backward had averaged gradients
  std::vector<BucketStatistics> buckets;  // in the order in which they are reduced
  std::vector<NonFiniteGradient> non_finite;

  int64_t bytes() const;

  // The share of the reduction time that was hidden: of the time in which any bucket was being reduced, the fraction
  // before the last gradient, while this rank was still computing. In [0, 1]; 0 if nothing was reduced.
  double HiddenShare() const;
};

// "rank 0 step 12: 84.1 ms, forward 24.2, backward 57.0; 3 buckets, 46.8 MB reduced in 9.1 ms, 78 % hidden".
std::string Summary(const StepStatistics& statistics);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_STATISTICS_H_
