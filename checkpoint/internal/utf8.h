// Which bytes are text.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_UTF8_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_UTF8_H_

#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::internal {

// Whether `text` is UTF-8 by RFC 3629.
bool IsUtf8(absl::string_view text);

// Whether Python's utf-8 decoder with "surrogatepass" accepts `text`, as for unpickling a str: UTF-8 that may contain
// surrogates.
bool IsPythonText(absl::string_view text);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_UTF8_H_
