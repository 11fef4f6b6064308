#include "lockstep/launch/output/line_prefixer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

// The length of the name at the start of `text`; 0 if it does not start with one.
size_t NameLength(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() && (text[length] == '_' || absl::ascii_isalpha(text[length]) ||
                                  (length > 0 && absl::ascii_isdigit(text[length])))) {
    ++length;
  }
  return length;
}

// The name that `text` refers to, "$name" or "${name}", and how many bytes of `text` do so; 0 if none.
std::pair<std::string, size_t> Reference(absl::string_view text) {
  const size_t braces = absl::StartsWith(text, "${") ? 1 : 0;
  const absl::string_view rest = text.substr(1 + braces);
  const size_t length = NameLength(rest);
  if (length == 0 || (braces == 1 && !absl::StartsWith(rest.substr(length), "}"))) return {"", 0};
  return {std::string(rest.substr(0, length)), 1 + 2 * braces + length};
}

}  // namespace

std::string FillIn(absl::string_view form, const std::map<std::string, std::string>& values) {
  std::string text;
  while (!form.empty()) {
    const size_t dollar = std::min(form.find('$'), form.size());
    absl::StrAppend(&text, form.substr(0, dollar));
    form.remove_prefix(dollar);
    if (form.empty()) break;
    const auto [name, bytes] = Reference(form);
    const auto value = values.find(name);
    const bool is_known = bytes > 0 && value != values.end();
    absl::StrAppend(&text, is_known ? absl::string_view(value->second) : "$");
    form.remove_prefix(is_known ? bytes : absl::StartsWith(form, "$$") ? 2 : 1);
  }
  return text;
}

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

}  // namespace lockstep::launch
