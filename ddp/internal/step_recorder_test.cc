// The times of steps on a device, which here is one that the test made: its streams do nothing but take time.

#include "lockstep/ddp/internal/step_recorder.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);
constexpr int64_t kMs = 1000000;

// The orders that the device has received, with times in its own nanoseconds.
struct Told {
  std::map<c10::StreamId, int64_t> streams;  // when each will have done everything
  int64_t now = 0;                           // as far as the host has waited
  c10::StreamId current = 0;
  int events = 0;  // that exist
  int records = 0;
  int synchronizations = 0;
};
Told told;

int64_t& TimeOf(void* event) { return *static_cast<int64_t*>(event); }

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return StreamOf(told.current); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return StreamOf(1); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return StreamOf(std::exchange(told.current, stream.id()));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    ASSERT_EQ(flag, c10::EventFlag::BACKEND_DEFAULT);
    if (!*event) {
      *event = new int64_t;
      ++told.events;
    }
    ++told.records;
    TimeOf(*event) = std::max(told.streams[stream.id()], told.now);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<int64_t*>(event);
    --told.events;
  }
  void block(void* event, const c10::Stream& stream) const override {
    told.streams[stream.id()] = std::max(told.streams[stream.id()], TimeOf(event));
  }
  bool queryEvent(void* event) const override { return TimeOf(event) <= told.now; }
  void synchronizeEvent(void* event) const override {
    ++told.synchronizations;
    told.now = std::max(told.now, TimeOf(event));
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    return static_cast<double>(TimeOf(end) - TimeOf(begin)) / kMs;
  }

  static c10::Stream StreamOf(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

constexpr c10::StreamId kCompute = 0, kCollectives = 2;

void Run(c10::StreamId stream, int64_t ms) {
  told.streams[stream] = std::max(told.streams[stream], told.now) + ms * kMs;
}

void Compute(int64_t ms) { Run(kCompute, ms); }

// An all_reduce of what the current stream has done so far.
class AllReduce {
 public:
  explicit AllReduce(int64_t ms) {
    c10::Event ready(kDevice.type(), c10::EventFlag::BACKEND_DEFAULT);
    ready.record(GuardImpl::StreamOf(told.current));
    ready.block(GuardImpl::StreamOf(kCollectives));
    Run(kCollectives, ms);
    done_.record(GuardImpl::StreamOf(kCollectives));
  }

  absl::Status Wait() const {
    done_.block(GuardImpl::StreamOf(told.current));
    return absl::OkStatus();
  }

 private:
  c10::Event done_{kDevice.type(), c10::EventFlag::BACKEND_DEFAULT};
};

AllReduce ReadyBucket(StepRecorder& recorder, size_t bucket, int64_t ms) {
  recorder.GradientReady();
  recorder.BucketReady(bucket);
  recorder.BucketStarted(bucket);
  return AllReduce(ms);
}

// Bucket 0 is reduced in 4 ms of the 20 in which backward goes on, bucket 1 in 6 ms after it.
void Backward(StepRecorder& recorder) {
  Compute(1);
  const AllReduce first = ReadyBucket(recorder, 0, 4);
  Compute(20);
  const AllReduce second = ReadyBucket(recorder, 1, 6);
  EXPECT_EQ(recorder.WaitForBucket(0, [&] { return first.Wait(); }), absl::OkStatus());
  EXPECT_EQ(recorder.WaitForBucket(1, [&] { return second.Wait(); }), absl::OkStatus());
  recorder.EndBackward();
}

void Forward(StepRecorder& recorder) {
  recorder.BeginForward();
  Compute(2);
  recorder.BeginCompute();
  Compute(10);
  recorder.EndForward();
}

void Step(StepRecorder& recorder) {
  Forward(recorder);
  Backward(recorder);
}

std::vector<int64_t> Times(const StepStatistics& step) {
  std::vector<int64_t> times = {step.compute_begin, step.forward_end, step.backward_begin, step.last_gradient,
                                step.end};
  for (const BucketStatistics& bucket : step.buckets)
    times.insert(times.end(), {bucket.ready, bucket.start, bucket.end});
  for (int64_t& time : times) time = time < 0 ? time : time / kMs;
  return times;
}

class StepRecorderTest : public ::testing::Test {
 protected:
  StepRecorderTest() {
    told = Told();
    recorder_.SetBuckets(std::vector<BucketStatistics>(2));
    Compute(7);  // what came before
  }

  StepRecorder recorder_{3, kDevice};
};

TEST_F(StepRecorderTest, TimesAreThoseOfTheDevicesStreams) {
  Step(recorder_);
  EXPECT_EQ(told.streams[kCompute], (7 + 39) * kMs) << "waits for the last all_reduce";
  ASSERT_THAT(recorder_.steps(), SizeIs(1));
  const StepStatistics& step = recorder_.steps().front();
  EXPECT_EQ(step.rank, 3);
  EXPECT_THAT(Times(step), ElementsAre(2, 12, 13, 33, 39, /*bucket 0*/ 13, 13, 17, /*bucket 1*/ 33, 33, 39));
  EXPECT_DOUBLE_EQ(step.HiddenShare(), 4.0 / 10);
}

TEST_F(StepRecorderTest, ABucketsEndIsNotedWhileTheDeviceComputesOn) {
  Forward(recorder_);
  const AllReduce all_reduce = ReadyBucket(recorder_, 0, 4);
  Compute(50);
  EXPECT_EQ(recorder_.WaitForBucket(0, [&] { return all_reduce.Wait(); }), absl::OkStatus());
  EXPECT_EQ(told.streams[kCompute], (7 + 12 + 50) * kMs) << "computing is not held up by it";
  recorder_.EndBackward();
  EXPECT_THAT(Times(recorder_.steps().front()), ElementsAre(2, 12, 12, 12, 62, 12, 12, 16, -1, -1, -1));
}

TEST_F(StepRecorderTest, TheHostIsNotBlockedUntilTimesAreAskedFor) {
  for (int i = 0; i < 3; ++i) Step(recorder_);
  EXPECT_EQ(told.synchronizations, 0);
  const int64_t before = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  const std::deque<StepStatistics> steps = recorder_.steps();
  EXPECT_GT(told.synchronizations, 0);
  ASSERT_THAT(steps, SizeIs(3));
  for (const StepStatistics& step : steps) EXPECT_EQ(step.end, 39 * kMs);
  // One after another, though the host enqueued them all at once; the last ends as it is asked for.
  EXPECT_EQ(steps[1].unix_time - steps[0].unix_time, 39 * kMs);
  EXPECT_EQ(steps[2].unix_time - steps[1].unix_time, 39 * kMs);
  EXPECT_GE(steps[2].unix_time + steps[2].end, before);
  const int synchronizations = told.synchronizations;
  EXPECT_THAT(recorder_.steps(), SizeIs(3));
  EXPECT_EQ(told.synchronizations, synchronizations) << "what has been read is not read again";
}

TEST_F(StepRecorderTest, EventsAreUsedAgain) {
  for (size_t i = 0; i < 2 * StepRecorder::kKept; ++i) Step(recorder_);
  const int events = told.events;
  EXPECT_LE(events, (StepRecorder::kKept + 2) * 11);
  for (size_t i = 0; i < 2 * StepRecorder::kKept; ++i) Step(recorder_);
  EXPECT_EQ(told.events, events);
  EXPECT_THAT(recorder_.steps(), SizeIs(StepRecorder::kKept));
  EXPECT_EQ(recorder_.steps().front().step, 3 * StepRecorder::kKept);
  EXPECT_EQ(recorder_.steps().back().end, 39 * kMs);
  Step(recorder_);
  EXPECT_EQ(told.events, events);
  EXPECT_THAT(recorder_.steps(), SizeIs(StepRecorder::kKept));
  EXPECT_EQ(recorder_.steps().front().end, 39 * kMs) << "read before";
}

TEST_F(StepRecorderTest, WhatIsCapturedIsNoStep) {
  recorder_.SetCaptured(true);
  Forward(recorder_);
  EXPECT_EQ(told.records, 0);
  c10::StreamId waited_on = -1;
  EXPECT_EQ(recorder_.WaitForBucket(0,
                                    [&] {
                                      waited_on = told.current;
                                      return absl::OkStatus();
                                    }),
            absl::OkStatus());
  EXPECT_EQ(waited_on, kCompute);
  recorder_.EndBackward();
  recorder_.SetCaptured(false);  // the forward was captured alone
  Backward(recorder_);
  EXPECT_THAT(recorder_.steps(), IsEmpty());
  Forward(recorder_);
  recorder_.SetCaptured(true);  // the backward is
  Backward(recorder_);
  EXPECT_THAT(recorder_.steps(), IsEmpty());
  recorder_.SetCaptured(false);
  Step(recorder_);
  ASSERT_THAT(recorder_.steps(), SizeIs(1));
  EXPECT_EQ(recorder_.steps().front().step, 0);
}

TEST_F(StepRecorderTest, ASecondBackwardOfAForwardIsAStepToo) {
  Step(recorder_);
  Backward(recorder_);
  ASSERT_THAT(recorder_.steps(), SizeIs(2));
  EXPECT_EQ(recorder_.steps()[1].unix_time, recorder_.steps()[0].unix_time);
  EXPECT_EQ(recorder_.steps()[1].forward_end, 12 * kMs);
  EXPECT_EQ(recorder_.steps()[1].end, (39 + 27) * kMs);
}

TEST_F(StepRecorderTest, AWaitThatFailsHasNoEnd) {
  Forward(recorder_);
  const AllReduce all_reduce = ReadyBucket(recorder_, 0, 4);
  EXPECT_EQ(recorder_.WaitForBucket(0, [] { return absl::AbortedError("rank 1 has died"); }),
            absl::AbortedError("rank 1 has died"));
  recorder_.EndBackward();
  EXPECT_EQ(recorder_.steps().front().buckets[0].end, -1);
}

}  // namespace
}  // namespace lockstep::ddp::internal
