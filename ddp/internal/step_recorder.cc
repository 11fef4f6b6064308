#include "lockstep/ddp/internal/step_recorder.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace lockstep::ddp::internal {
namespace {

template <typename Clock>
int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

StepRecorder::StepRecorder(int rank, std::optional<c10::Device> device)
    : clock_(device ? std::make_unique<DeviceClock>(*device) : nullptr) {
  current_.rank = rank;
}

void StepRecorder::SetBuckets(std::vector<BucketStatistics> buckets) {
  moments_.buckets.assign(buckets.size(), BucketMoments());
  current_.buckets = std::move(buckets);
}

int64_t StepRecorder::Now() const { return Nanoseconds<std::chrono::steady_clock>() - begin_; }

void StepRecorder::Record(int64_t& time, Moment& moment) {
  if (!clock_) {
    time = Now();
  } else if (!captured_) {
    moment = clock_->Now();
  }
}

void StepRecorder::BeginForward() {
  begin_ = Nanoseconds<std::chrono::steady_clock>();
  current_.unix_time = Nanoseconds<std::chrono::system_clock>();
  current_.compute_begin = current_.forward_end = current_.backward_begin = current_.last_gradient = current_.end = -1;
  for (BucketStatistics& bucket : current_.buckets) bucket.ready = bucket.start = bucket.end = -1;
  current_.non_finite.clear();
  if (!clock_) return;
  moments_ = StepMoments();
  moments_.buckets.resize(current_.buckets.size());
  if (!captured_) moments_.begin = clock_->Now();
}

void StepRecorder::GradientReady() {
  if (!clock_) current_.last_gradient = Now();  // on a device, the time of the bucket that is ready last
  if (current_.backward_begin < 0 && !moments_.backward_begin) Record(current_.backward_begin, moments_.backward_begin);
}

absl::Status StepRecorder::WaitForBucket(size_t bucket, const std::function<absl::Status()>& wait) {
  if (clock_ && !captured_) return clock_->WaitFor(wait, moments_.buckets[bucket].end);
  const absl::Status status = wait();
  if (status.ok()) BucketEnded(bucket);
  return status;
}

void StepRecorder::EndBackward() {
  if (captured_ || (clock_ && !moments_.begin)) return;
  Record(current_.end, moments_.end);
  steps_.push_back(current_);
  if (clock_) unread_.push_back(moments_);
  if (steps_.size() > kKept) steps_.pop_front();
  if (unread_.size() > kKept) unread_.pop_front();
  ++current_.step;
}

const std::deque<StepStatistics>& StepRecorder::steps() {
  if (!unread_.empty()) ReadMoments();
  return steps_;
}

void StepRecorder::ReadMoments() {
  std::vector<Moment> ends;
  for (const StepMoments& step : unread_) ends.push_back(step.end);
  const Moment now = clock_->Synchronize(ends);
  const int64_t unix_now = Nanoseconds<std::chrono::system_clock>();
  auto step = steps_.end() - static_cast<std::ptrdiff_t>(unread_.size());
  for (const StepMoments& moments : unread_) {
    const auto since_begin = [&](const Moment& moment) {
      return moment ? DeviceClock::Between(moments.begin, moment) : -1;
    };
    step->unix_time = unix_now - DeviceClock::Between(moments.begin, now);
    step->compute_begin = since_begin(moments.compute_begin);
    step->forward_end = since_begin(moments.forward_end);
    step->backward_begin = since_begin(moments.backward_begin);
    step->end = since_begin(moments.end);
    for (size_t i = 0; i < step->buckets.size(); ++i) {
      BucketStatistics& bucket = step->buckets[i];
      bucket.ready = since_begin(moments.buckets[i].ready);
      bucket.start = since_begin(moments.buckets[i].start);
      bucket.end = since_begin(moments.buckets[i].end);
      step->last_gradient = std::max(step->last_gradient, bucket.ready);
    }
    ++step;
  }
  unread_.clear();
}

}  // namespace lockstep::ddp::internal
