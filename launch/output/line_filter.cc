#include "lockstep/launch/output/line_filter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep::launch {

LineFilter::LineFilter(const std::string& prefix, std::vector<std::string> texts)
    : prefix_bytes_(prefix.size()), texts_(std::move(texts)), prefixer_(prefix) {}

void LineFilter::TakeLines(std::string* out) {
  for (const absl::string_view line : absl::StrSplit(lines_, '\n', absl::SkipEmpty())) {
    const absl::string_view rest = line.substr(prefix_bytes_);
    const bool kept = std::any_of(texts_.begin(), texts_.end(),
                                  [&](const std::string& text) { return absl::StrContains(rest, text); });
    if (kept) absl::StrAppend(out, line, "\n");
  }
  lines_.clear();
}

void LineFilter::Feed(absl::string_view text, std::string* out) {
  prefixer_.Feed(text, &lines_);
  TakeLines(out);
}

void LineFilter::Finish(std::string* out) {
  prefixer_.Finish(&lines_);
  TakeLines(out);
}

}  // namespace lockstep::launch
