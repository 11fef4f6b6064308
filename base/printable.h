// Makes text from outside (file names, flags, reports of ranks) safe to print.

#ifndef LOCKSTEP_BASE_PRINTABLE_H_
#define LOCKSTEP_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// `text` with control characters and bytes that are not UTF-8 as escapes: "\n", "\x1b". Everything else does not
// change, including accents and backslashes. So no name can move a terminal's cursor or start a new line. Characters
// that only change the direction of text, such as U+202E, are control characters too.
std::string Printable(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PRINTABLE_H_
