#include "lockstep/base/wrapped_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep {

std::string Wrapped(absl::string_view names, absl::string_view text, size_t indent, size_t width) {
  const std::string margin(indent, ' ');
  std::string wrapped(names), line;
  if (names.size() + 2 > indent) {
    wrapped += "\n" + margin;
  } else {
    wrapped.resize(indent, ' ');
  }
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      absl::StrAppend(&wrapped, line, "\n", margin);
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  absl::StrAppend(&wrapped, line);
  absl::StripTrailingAsciiWhitespace(&wrapped);
  return wrapped + "\n";
}

}  // namespace lockstep
