#include "lockstep/launch/job/stall_watch.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"

namespace lockstep::launch {
namespace {

constexpr absl::Duration kFirstLine = absl::Seconds(30);
// How much longer a line waits for a rank that says why. Ranks look at their calls every 2 s.
constexpr absl::Duration kWaitForWhy = absl::Seconds(6);
// Ranks say why every 10 s.
constexpr absl::Duration kFresh = absl::Seconds(15);

}  // namespace

void StallWatch::Begin(int64_t now_ns, bool stepped) {
  begun_ = true;
  stepped_ = stepped;
  since_ns_ = now_ns;
  next_ = kFirstLine;
  said_ns_.reset();
  ended_ = false;
}

void StallWatch::OnGeneration(int64_t now_ns) { Begin(now_ns, false); }

void StallWatch::OnStep(int64_t now_ns) {
  heard_ = true;
  Begin(now_ns, true);
}

void StallWatch::OnReport(const std::string& why, int rank, int64_t now_ns) {
  heard_ = true;
  if (rank != rank_) ended_ = false;
  why_ = why;
  rank_ = rank;
  said_ns_ = now_ns;
}

bool StallWatch::IsFresh(int64_t now_ns) const { return said_ns_ && absl::Nanoseconds(now_ns - *said_ns_) <= kFresh; }

std::string StallWatch::TakeLine(int64_t now_ns) {
  const absl::Duration lasts = absl::Nanoseconds(now_ns - since_ns_);
  const bool is_fresh = IsFresh(now_ns);
  if (!begun_ || !heard_ || lasts < (is_fresh ? next_ : next_ + kWaitForWhy)) return "";
  while (next_ <= lasts) next_ *= 2;
  return absl::StrCat("no step for ", absl::FormatDuration(absl::Trunc(lasts, absl::Seconds(1))),
                      stepped_ ? "" : ", since the generation began", ": ",
                      is_fresh ? why_ : "no rank says that it waits for another one");
}

std::optional<int> StallWatch::TakeCulprit(int64_t now_ns) {
  const bool is_due = begun_ && absl::Nanoseconds(now_ns - since_ns_) >= timeout_;
  if (!is_due || !IsFresh(now_ns) || rank_ < 0 || ended_) return std::nullopt;
  ended_ = true;
  return rank_;
}

int64_t StallWatch::next_look() const {
  return begun_ && heard_ ? since_ns_ + absl::ToInt64Nanoseconds(next_ + kWaitForWhy) : kNever;
}

}  // namespace lockstep::launch
