// Text in files: whether bytes are text, and text as messages show it.

#ifndef LOCKSTEP_CHECKPOINT_FILE_TEXT_H_
#define LOCKSTEP_CHECKPOINT_FILE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::file {

// Returns whether `text` is UTF-8 by RFC 3629.
bool IsUtf8(absl::string_view text);

// Returns whether Python's utf-8 decoder with "surrogatepass" accepts `text`, as for unpickling a str: UTF-8 that may
// contain surrogates.
bool IsPythonText(absl::string_view text);

// `text` in quotes, escaped, and truncated if it is long.
std::string Quoted(absl::string_view text);

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_TEXT_H_
