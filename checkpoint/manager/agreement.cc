#include "lockstep/checkpoint/manager/agreement.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::checkpoint {
namespace {

// A byte for the status code, then what was given or the message.
std::string Encoded(const absl::StatusOr<std::string>& outcome) {
  const absl::string_view rest = outcome.ok() ? absl::string_view(*outcome) : outcome.status().message();
  return absl::StrCat(std::string(1, static_cast<char>(outcome.status().code())), rest);
}

absl::StatusOr<std::string> Decoded(const std::string& bytes) {
  if (bytes.empty()) return absl::InternalError("a rank sent no outcome; do all ranks run the same program?");
  if (bytes[0] == 0) return bytes.substr(1);
  return absl::Status(static_cast<absl::StatusCode>(bytes[0]), bytes.substr(1));
}

}  // namespace

absl::StatusOr<std::vector<absl::StatusOr<std::string>>> GatherOutcomes(comm::ProcessGroup* group,
                                                                        const absl::StatusOr<std::string>& own) {
  if (group == nullptr) return std::vector<absl::StatusOr<std::string>>{own};
  absl::StatusOr<std::string> told = own;
  if (!own.ok()) told = Annotate(own.status(), comm::NameOf(comm::IdentityOfThisProcess(group->rank())));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, group->AllGatherBytes(Encoded(told)));
  std::vector<absl::StatusOr<std::string>> outcomes;
  for (const std::string& bytes : gathered) outcomes.push_back(Decoded(bytes));
  return outcomes;
}

absl::StatusOr<std::vector<std::string>> GatherAgreed(comm::ProcessGroup* group,
                                                      const absl::StatusOr<std::string>& own) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto outcomes, GatherOutcomes(group, own));
  absl::Status first;
  int others = 0;
  std::vector<std::string> values;
  for (const absl::StatusOr<std::string>& outcome : outcomes) {
    if (outcome.ok()) {
      values.push_back(*outcome);
    } else if (first.ok()) {
      first = outcome.status();
    } else {
      ++others;
    }
  }
  if (first.ok()) return values;
  if (others == 0) return first;
  return absl::Status(first.code(), absl::StrCat(first.message(), "; and ", others, " more"));
}

absl::Status Agree(comm::ProcessGroup* group, const absl::Status& own) {
  if (own.ok()) return GatherAgreed(group, std::string()).status();
  return GatherAgreed(group, own).status();
}

}  // namespace lockstep::checkpoint
