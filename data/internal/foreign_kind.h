#ifndef LOCKSTEP_DATA_INTERNAL_FOREIGN_KIND_H_
#define LOCKSTEP_DATA_INTERNAL_FOREIGN_KIND_H_

#include "absl/strings/string_view.h"

namespace lockstep::data::internal {

// Returns the kind of a file that lies among images and that no decoder reads, such as "a GIF image" or "an HTML page",
// by the first of its `bytes`. Empty: it is none of the known kinds.
absl::string_view ForeignKind(absl::string_view bytes);

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_INTERNAL_FOREIGN_KIND_H_
