#include "lockstep/launch/job/restart_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

// An attempt that takes less time has failed at its start, and the next one most likely fails there too.
constexpr absl::Duration kShortAttempt = absl::Seconds(10);
constexpr absl::Duration kFirstPause = absl::Milliseconds(100), kLongestPause = absl::Seconds(10);
// From this number on, short attempts in succession are a crash loop.
constexpr int kCrashLoop = 3;

}  // namespace

void RestartPolicy::RecordAttempt(AttemptEnd end, absl::Duration duration) {
  if (end != AttemptEnd::kFailed || duration >= kShortAttempt) {
    short_attempts_ = 0;
    longest_ = absl::ZeroDuration();
    return;
  }
  ++short_attempts_;
  longest_ = std::max(longest_, duration);
}

bool RestartPolicy::Restart(AttemptEnd end, absl::Time start, absl::Time now) {
  RecordAttempt(end, now - start);
  const auto is_old = [&](absl::Time restart) { return now - restart >= window_; };
  counted_.erase(std::remove_if(counted_.begin(), counted_.end(), is_old), counted_.end());
  if (end != AttemptEnd::kFailed || static_cast<int>(counted_.size()) >= max_restarts_) return false;
  counted_.push_back(now);
  ++restarts_;
  return true;
}

absl::Duration RestartPolicy::Pause() const {
  if (short_attempts_ < 2) return absl::ZeroDuration();
  absl::Duration pause = kFirstPause;
  for (int i = 2; i < short_attempts_ && pause < kLongestPause; ++i) pause *= 2;
  return std::min(pause, kLongestPause);
}

std::string RestartPolicy::Announcement() const {
  const bool has_window = window_ != absl::InfiniteDuration();
  std::string text = absl::StrCat("restart ", restarts_);
  if (has_window) absl::StrAppend(&text, ", ", counted_.size());
  absl::StrAppend(&text, " of ", max_restarts_);
  if (has_window) absl::StrAppend(&text, " within ", absl::FormatDuration(window_));
  if (Pause() > absl::ZeroDuration()) absl::StrAppend(&text, " in ", absl::FormatDuration(Pause()));
  return text;
}

std::string RestartPolicy::Ending(AttemptEnd end) const {
  if (max_restarts_ == 0) return "";
  if (end == AttemptEnd::kNotStarted) return "; a failed start-up is not retried";
  std::string text = absl::StrCat("; after ", restarts_, restarts_ == 1 ? " restart" : " restarts");
  if (static_cast<int>(counted_.size()) < restarts_) {
    absl::StrAppend(&text, ", ", counted_.size(), " of them within ", absl::FormatDuration(window_));
  }
  if (short_attempts_ >= kCrashLoop) {
    absl::StrAppend(&text, "; each of the last ", short_attempts_, " attempts failed within ",
                    absl::FormatDuration(absl::Ceil(longest_, absl::Milliseconds(100))));
  }
  return text;
}

}  // namespace lockstep::launch
