// Text from a file as messages show it.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_QUOTED_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_QUOTED_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::internal {

// In quotes, escaped, and truncated if it is long.
std::string Quoted(absl::string_view text);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_QUOTED_H_
