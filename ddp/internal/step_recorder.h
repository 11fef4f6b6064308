#ifndef LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_
#define LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/internal/device_clock.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {

// Records the times of each step, and keeps the last steps.
class StepRecorder {
 public:
  static constexpr size_t kKept = 128;

  // Times are taken when `device` reaches the work, or without a device when the host does.
  StepRecorder(int rank, std::optional<c10::Device> device);

  // The buckets of the steps from now on, without times.
  void SetBuckets(std::vector<BucketStatistics> buckets);

  // Sets whether the following work goes into a CUDA graph. It does not run now, so it has no times and does not count
  // as a step.
  void SetCaptured(bool captured) { captured_ = captured; }

  void BeginForward();
  void BeginCompute() { Record(current_.compute_begin, moments_.compute_begin); }
  void EndForward() { Record(current_.forward_end, moments_.forward_end); }
  void GradientReady();
  void BucketReady(size_t bucket) { Record(current_.buckets[bucket].ready, moments_.buckets[bucket].ready); }
  void BucketStarted(size_t bucket) { Record(current_.buckets[bucket].start, moments_.buckets[bucket].start); }
  void BucketEnded(size_t bucket) { Record(current_.buckets[bucket].end, moments_.buckets[bucket].end); }
  // Calls `wait`, which waits for the bucket's result as Work::Wait() does.
  absl::Status WaitForBucket(size_t bucket, const std::function<absl::Status()>& wait);
  void SetNonFinite(std::vector<NonFiniteGradient> found) { current_.non_finite = std::move(found); }
  void EndBackward();

  // Oldest first. Blocks until the device has done them.
  const std::deque<StepStatistics>& steps();

 private:
  using Moment = DeviceClock::Moment;

  // The moments of a step on a device. Their times are available later.
  struct BucketMoments {
    Moment ready, start, end;
  };
  struct StepMoments {
    Moment begin, compute_begin, forward_end, backward_begin, end;
    std::vector<BucketMoments> buckets;
  };

  void Record(int64_t& time, Moment& moment);
  void ReadMoments();
  int64_t Now() const;

  const std::unique_ptr<DeviceClock> clock_;  // null: times of the host
  bool captured_ = false;
  int64_t begin_ = 0;  // on the steady clock
  StepStatistics current_;
  StepMoments moments_;
  std::deque<StepStatistics> steps_;
  std::deque<StepMoments> unread_;  // of the last of `steps_`
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_STEP_RECORDER_H_
