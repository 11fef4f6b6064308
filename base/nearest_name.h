// Finds the name that a misspelled one may mean, for messages such as "did you mean --epochs?".

#ifndef LOCKSTEP_BASE_NEAREST_NAME_H_
#define LOCKSTEP_BASE_NEAREST_NAME_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep {

// Returns the candidate closest to `name`, or nullopt if none is close. The first of several equally close candidates
// is returned. Close means, in this order:
// - at most a third of the letters are inserted, deleted, replaced or swapped with their neighbour ("epcohs",
//   "epochs");
// - one contains the other, which has at least three letters ("backend", "dist_backend").
std::optional<std::string> NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NEAREST_NAME_H_
