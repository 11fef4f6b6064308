// Exchanges the outcome of an operation that may fail on each rank, so that all ranks know the outcome of all.
//
//   absl::Status own = WriteMyPart();
//   LOCKSTEP_RETURN_IF_ERROR(Agree(group, "WriteParts", own));  // one rank's full disk is an error on every rank
//
// Every rank of `group` must call the same function. It is one AllGatherBytes: it blocks until all ranks have called
// it, and returns the group's error if that fails. Without a group (nullptr) the caller is the only rank. A rank's
// error is prefixed with its name: "rank 1 (host a, pid 123): ...".
//
// `call` names the operation, for example by the caller's name, and must be the same on all ranks. If it differs, all
// ranks get InvalidArgument, which says which rank made which call.

#ifndef LOCKSTEP_COMM_AGREEMENT_H_
#define LOCKSTEP_COMM_AGREEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

// The outcome of each rank, by rank.
absl::StatusOr<std::vector<absl::StatusOr<std::string>>> GatherOutcomes(ProcessGroup* group, absl::string_view call,
                                                                        const absl::StatusOr<std::string>& own);

// The texts of all ranks, by rank. If any rank passed an error, every rank gets the same error: that of the lowest such
// rank, and how many other ranks have one.
absl::StatusOr<std::vector<std::string>> GatherAgreed(ProcessGroup* group, absl::string_view call,
                                                      const absl::StatusOr<std::string>& own);

// Like GatherAgreed(), for a status without a text.
absl::Status Agree(ProcessGroup* group, absl::string_view call, const absl::Status& own);

// The error of one rank, as an error of the functions above has it on every rank.
struct AgreedError {
  int rank = 0;
  std::string message;  // as the rank passed it, without the rank's name
};

// nullopt: the functions above have not made this status, or the group has failed.
std::optional<AgreedError> AgreedErrorOf(const absl::Status& status);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_AGREEMENT_H_
