#include "lockstep/checkpoint/internal/quoted.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lockstep::checkpoint::internal {

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 60;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kLongest)), text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace lockstep::checkpoint::internal
