// The texts that the ranks send each other while they meet. Pure.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_ROSTER_H_
#define LOCKSTEP_COMM_RENDEZVOUS_ROSTER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/environment/rank_identity.h"

namespace lockstep::comm {

// One rank's announcement.
struct Member {
  std::string token;  // random: also distinguishes threads of one process that each act as a rank
  RankIdentity identity;
  std::string facts;  // any text
};

std::string EncodeMember(const Member& member);

// InvalidArgument: EncodeMember() did not write the text.
absl::StatusOr<Member> DecodeMember(absl::string_view text);

// All ranks' announcements, by rank. A Python rank has none.
using Roster = std::vector<std::optional<Member>>;

// Contains each host and each text of facts once, and about 40 bytes for each rank.
std::string EncodeRoster(const Roster& roster);

// InvalidArgument: EncodeRoster() did not write the text.
absl::StatusOr<Roster> DecodeRoster(absl::string_view text);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RENDEZVOUS_ROSTER_H_
