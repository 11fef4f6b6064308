// Lines of --help.

#ifndef LOCKSTEP_BASE_WRAPPED_TEXT_H_
#define LOCKSTEP_BASE_WRAPPED_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// `names`, and beside it `text` from column `indent` on, in lines of at most `width` columns. Where `names` is too
// long, `text` begins on the next line.
std::string Wrapped(absl::string_view names, absl::string_view text, size_t indent, size_t width);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_WRAPPED_TEXT_H_
