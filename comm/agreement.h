// What ranks tell each other of something that each of them may fail at, so that all know how it ended for all.
//
//   absl::Status own = WriteMyPart();
//   LOCKSTEP_RETURN_IF_ERROR(Agree(group, "WriteParts", own));  // one rank's full disk is every rank's error
//
// Each is called by every rank of `group`, is one AllGatherBytes of it, blocks until all have come, and returns the
// group's own error where one cannot. Without a group (nullptr) the caller is the only rank. A rank's error is told
// with its name: "rank 1 (host a, pid 123): ...".
//
// `call` says what this is about, such as the caller's name, and must be the same on all ranks: else all get
// InvalidArgument, which says who is where, rather than each other's words for something else.

#ifndef LOCKSTEP_COMM_AGREEMENT_H_
#define LOCKSTEP_COMM_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// What each rank gave, by rank.
absl::StatusOr<std::vector<absl::StatusOr<std::string>>> GatherOutcomes(ProcessGroup* group, absl::string_view call,
                                                                        const absl::StatusOr<std::string>& own);

// What each rank gave, or the same error on every rank where one of them gave an error: the lowest rank's, and how many
// others have one.
absl::StatusOr<std::vector<std::string>> GatherAgreed(ProcessGroup* group, absl::string_view call,
                                                      const absl::StatusOr<std::string>& own);

// The same of nothing but a status.
absl::Status Agree(ProcessGroup* group, absl::string_view call, const absl::Status& own);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_AGREEMENT_H_
