// Finds the name that a misspelled one was meant to be, for messages such as "did you mean --epochs?".

#ifndef LOCKSTEP_BASE_NEAREST_NAME_H_
#define LOCKSTEP_BASE_NEAREST_NAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

// Returns the candidate that is closest to `name`, or nothing if none is close. Close is, in this order,
//   - at most a third of the letters inserted, deleted, replaced or swapped with their neighbour ("epcohs", "epochs"),
//   - one of the two contained in the other, from three letters on ("backend", "dist_backend").
// Of several that are equally close the first one is returned.
std::optional<std::string> NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NEAREST_NAME_H_
