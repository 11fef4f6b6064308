#include "lockstep/ddp/internal/step_recorder.h"

#include <chrono>

namespace lockstep::ddp::internal {
namespace {

template <typename Clock>
int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

int64_t StepRecorder::Now() const { return Nanoseconds<std::chrono::steady_clock>() - begin_; }

void StepRecorder::BeginForward() {
  begin_ = Nanoseconds<std::chrono::steady_clock>();
  current_.unix_time = Nanoseconds<std::chrono::system_clock>();
  current_.compute_begin = current_.forward_end = current_.backward_begin = current_.last_gradient = current_.end = -1;
  for (BucketStatistics& bucket : current_.buckets) bucket.ready = bucket.start = bucket.end = -1;
  current_.non_finite.clear();
}

void StepRecorder::BeginCompute() { current_.compute_begin = Now(); }

void StepRecorder::EndForward() { current_.forward_end = Now(); }

void StepRecorder::GradientReady() {
  current_.last_gradient = Now();
  if (current_.backward_begin < 0) current_.backward_begin = current_.last_gradient;
}

void StepRecorder::EndBackward() {
  current_.end = Now();
  steps_.push_back(current_);
  if (steps_.size() > kKept) steps_.pop_front();
  ++current_.step;
}

}  // namespace lockstep::ddp::internal
