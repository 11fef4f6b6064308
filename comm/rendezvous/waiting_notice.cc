#include "lockstep/comm/rendezvous/waiting_notice.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace lockstep::comm {
namespace {

constexpr size_t kMostRanges = 10;

// In whole seconds. Shorter durations, as in tests, are shown exactly.
std::string Seconds(absl::Duration duration) {
  if (duration < absl::Seconds(1)) return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
  return absl::StrCat(absl::ToInt64Seconds(duration), " s");
}

void WriteToStderr(const std::string& line) { std::fputs(absl::StrCat(line, "\n").c_str(), stderr); }

// 1, 3, 6, 12, 18, ... intervals.
absl::Duration TimeAfter(absl::Duration time, absl::Duration interval) {
  if (time < 3 * interval) return 3 * interval;
  return time < 6 * interval ? 6 * interval : time + 6 * interval;
}

}  // namespace

WaitingNotice::WaitingNotice(WaitingNoticeOptions options)
    : options_(std::move(options)), start_(absl::Now()), next_(options_.interval) {}

void WaitingNotice::Tick(const std::function<std::string()>& what, absl::string_view advice) {
  const absl::Duration waited = absl::Now() - start_;
  if (waited < next_) return;
  // Skips lines that were due while Tick() was not called.
  while (next_ <= waited) next_ = TimeAfter(next_, options_.interval);
  const std::string text = what();
  if (text.empty()) return;
  const std::string line = absl::StrCat(options_.who, ": waiting for ", text, " (", Seconds(waited), " of ",
                                        Seconds(options_.timeout), ")", advice);
  options_.write ? options_.write(line) : WriteToStderr(line);
}

std::string DescribeRanks(const std::vector<int>& ascending, int world_size) {
  std::vector<std::string> ranges;
  size_t shown = 0;
  while (shown < ascending.size() && ranges.size() < kMostRanges) {
    size_t last = shown;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (last == shown + 1) last = shown;  // two ranks are not worth a range
    ranges.push_back(last == shown ? absl::StrCat(ascending[shown])
                                   : absl::StrCat(ascending[shown], "-", ascending[last]));
    shown = last + 1;
  }
  const size_t rest = ascending.size() - shown;
  return absl::StrCat(ascending.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranges, ", "),
                      rest > 0 ? absl::StrCat(" and ", rest, " more") : "", " (", ascending.size(), " of ", world_size,
                      ")");
}

}  // namespace lockstep::comm
