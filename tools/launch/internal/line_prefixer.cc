#include "lockstep/tools/launch/internal/line_prefixer.h"

#include "absl/strings/str_cat.h"

namespace lockstep::launch::internal {

void LinePrefixer::EndLine(std::string* out) {
  absl::StrAppend(out, prefix_, line_, "\n");
  line_.clear();
}

void LinePrefixer::Keep(absl::string_view part, std::string* out) {
  while (line_.size() + part.size() > longest_) {
    const size_t taken = longest_ - line_.size();
    absl::StrAppend(&line_, part.substr(0, taken));
    part.remove_prefix(taken);
    EndLine(out);
  }
  absl::StrAppend(&line_, part);
}

void LinePrefixer::Feed(absl::string_view text, std::string* out) {
  while (!text.empty()) {
    if (after_return_ && text.front() == '\n') text.remove_prefix(1);
    after_return_ = false;
    const size_t end = text.find_first_of("\r\n");
    Keep(text.substr(0, end), out);
    if (end == absl::string_view::npos) return;
    EndLine(out);
    after_return_ = text[end] == '\r';
    text.remove_prefix(end + 1);
  }
}

void LinePrefixer::Finish(std::string* out) {
  if (!line_.empty()) EndLine(out);
}

}  // namespace lockstep::launch::internal
