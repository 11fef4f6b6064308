// Text from elsewhere (file names, flags, what ranks report), made safe to print.

#ifndef LOCKSTEP_BASE_PRINTABLE_H_
#define LOCKSTEP_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// `text` with control characters and bytes that are not UTF-8 as escapes: "\n", "\x1b". Everything else, accents and
// backslashes too, stays as it is. So no name can move a terminal's cursor or begin a line.
std::string Printable(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PRINTABLE_H_
