// The texts of the group's causes, the same on whichever rank produces them.

#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_WORDING_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_WORDING_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm::internal {

// "all_reduce #12".
std::string NameOfCall(int64_t sequence, absl::string_view operation);

// "rank 1 (...) left the group after all_reduce #12"; before any call, "... before its first call".
std::string LeftText(const RankIdentity& rank, int64_t last_sequence, absl::string_view last_operation);

// "rank 1 (...) died: signal 9 (Killed)"; with no fate known, "rank 1 (...) was lost: its connection closed".
std::string LostText(const RankIdentity& rank, const std::string& fate, const std::string& how);

// "rank 1 (...) failed: <message>".
std::string FailedText(const RankIdentity& rank, absl::string_view message);

// "rank 1 (...) does not answer (stopped, or unreachable)", or "rank 1 (...) is stopped" if this process can see it.
std::string SilentText(const RankIdentity& rank);

// "rank 1 (...) has not begun it: its last call was broadcast #3", or "... it is still in broadcast #3".
std::string LateText(const RankIdentity& rank, int64_t last_sequence, absl::string_view last_operation, bool in_it);

// "all_reduce #12 timed out after 3s: <reasons>". If there are many reasons, only the first few.
std::string TimeoutText(int64_t sequence, absl::string_view operation, absl::Duration timeout,
                        const std::vector<std::string>& reasons);

// "all_reduce #12 has lasted 30s: <reasons>", as TimeoutText().
std::string StallText(int64_t sequence, absl::string_view operation, absl::Duration lasted,
                      const std::vector<std::string>& reasons);

// "call #12 differs: ranks 0, 2 have <fingerprint>; rank 1 has <fingerprint>"; `silent` ranks have said none yet.
std::string MismatchText(int64_t sequence, const std::map<std::string, std::vector<int>>& ranks_by_fingerprint,
                         const std::vector<int>& silent);

// "these ranks did not connect: rank 1 (...), rank 3 (...)".
std::string MissingText(const std::vector<RankIdentity>& missing);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_WORDING_H_
