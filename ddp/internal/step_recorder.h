#ifndef LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_
#define LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {

// Takes the times of a step, and keeps the last steps.
class StepRecorder {
 public:
  static constexpr size_t kKept = 128;

  explicit StepRecorder(int rank) { current_.rank = rank; }

  // The buckets of the steps from now on, without times.
  void SetBuckets(std::vector<BucketStatistics> buckets) { current_.buckets = std::move(buckets); }

  void BeginForward();
  void BeginCompute();
  void EndForward();
  void GradientReady();
  void BucketReady(size_t bucket) { current_.buckets[bucket].ready = Now(); }
  void BucketStarted(size_t bucket) { current_.buckets[bucket].start = Now(); }
  void BucketEnded(size_t bucket) { current_.buckets[bucket].end = Now(); }
  void SetNonFinite(std::vector<NonFiniteGradient> found) { current_.non_finite = std::move(found); }
  void EndBackward();

  // Oldest first.
  const std::deque<StepStatistics>& steps() const { return steps_; }

 private:
  int64_t Now() const;

  int64_t begin_ = 0;  // on the steady clock
  StepStatistics current_;
  std::deque<StepStatistics> steps_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_
