#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_MEETING_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_MEETING_H_

#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/hierarchical/internal/links.h"

namespace lockstep::comm::hierarchical::internal {

// Connects the ranks: each listens for the ranks after it, and connects to those before it. Returns a non-blocking
// socket for each rank and lane, peer by peer; an invalid one for this rank.
absl::StatusOr<std::vector<UniqueFd>> Meet(const LinksOptions& options);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_MEETING_H_
