#include "lockstep/launch/status/step_rate.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr int64_t kWindowNs = 10'000'000'000;
// A rank that makes a step each millisecond needs no more memory than a slow one.
constexpr int64_t kSpacingNs = 100'000'000;

}  // namespace

void StepRate::Record(int64_t step, int64_t now_ns) {
  if (!samples_.empty() && step < samples_.back().step) samples_.clear();
  if (!samples_.empty() && step == samples_.back().step) return;
  const size_t count = samples_.size();
  if (count >= 2 && samples_[count - 1].time_ns - samples_[count - 2].time_ns < kSpacingNs) samples_.pop_back();
  samples_.push_back({step, now_ns});
  while (samples_.size() > 2 && samples_[1].time_ns <= now_ns - kWindowNs) samples_.pop_front();
}

std::optional<int64_t> StepRate::step() const {
  if (samples_.empty()) return std::nullopt;
  return samples_.back().step;
}

std::optional<absl::Duration> StepRate::Age(int64_t now_ns) const {
  if (samples_.empty()) return std::nullopt;
  return absl::Nanoseconds(now_ns - samples_.back().time_ns);
}

std::optional<double> StepRate::PerSecond(int64_t now_ns) const {
  if (samples_.size() < 2) return std::nullopt;
  const Sample& last = samples_.back();
  // The samples are of the 10 s before the last step, which may be long ago.
  size_t begin = 0;
  while (begin + 2 < samples_.size() && samples_[begin + 1].time_ns <= now_ns - kWindowNs) ++begin;
  const Sample& first = samples_[begin];
  const double steps = static_cast<double>(last.step - first.step);
  const double measured_ns = static_cast<double>(std::max<int64_t>(last.time_ns - first.time_ns, 1));
  const double late_ns = static_cast<double>(now_ns - last.time_ns) - measured_ns / steps;
  if (late_ns > std::max(static_cast<double>(kWindowNs), measured_ns / steps)) return 0;
  return steps * 1e9 / (measured_ns + std::max(late_ns, 0.0));
}

}  // namespace lockstep::launch
