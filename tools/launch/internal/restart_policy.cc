#include "lockstep/tools/launch/internal/restart_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep::launch::internal {

bool RestartPolicy::Restart(AttemptEnd end, absl::Time now) {
  const auto is_old = [&](absl::Time restart) { return now - restart >= window_; };
  counted_.erase(std::remove_if(counted_.begin(), counted_.end(), is_old), counted_.end());
  if (end != AttemptEnd::kFailed || static_cast<int>(counted_.size()) >= max_restarts_) return false;
  counted_.push_back(now);
  ++restarts_;
  return true;
}

std::string RestartPolicy::Announcement() const {
  if (window_ == absl::InfiniteDuration()) return absl::StrCat("restart ", restarts_, " of ", max_restarts_);
  return absl::StrCat("restart ", restarts_, ", ", counted_.size(), " of ", max_restarts_, " within ",
                      absl::FormatDuration(window_));
}

std::string RestartPolicy::Ending(AttemptEnd end) const {
  if (max_restarts_ == 0 || end == AttemptEnd::kSignalled) return "";
  if (end == AttemptEnd::kNotStarted) return "; a failed start-up is not retried";
  std::string text = absl::StrCat("; after ", restarts_, restarts_ == 1 ? " restart" : " restarts");
  if (static_cast<int>(counted_.size()) < restarts_) {
    absl::StrAppend(&text, ", ", counted_.size(), " of them within ", absl::FormatDuration(window_));
  }
  return text;
}

}  // namespace lockstep::launch::internal
