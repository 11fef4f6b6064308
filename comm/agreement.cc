#include "lockstep/comm/agreement.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/tools/launch/report.h"

namespace lockstep::comm {
namespace {

// The call, a byte for the status code, then the value or the message.
std::string Encoded(absl::string_view call, const absl::StatusOr<std::string>& outcome) {
  const absl::string_view rest = outcome.ok() ? absl::string_view(*outcome) : outcome.status().message();
  return absl::StrCat(call, "\n", std::string(1, static_cast<char>(outcome.status().code())), rest);
}

absl::string_view CallOf(absl::string_view bytes) { return bytes.substr(0, bytes.find('\n')); }

absl::StatusOr<std::string> Decoded(absl::string_view bytes) {
  const absl::string_view outcome = bytes.substr(CallOf(bytes).size());
  if (outcome.size() < 2) return absl::InternalError("a rank sent no outcome; do all ranks run the same program?");
  if (outcome[1] == 0) return std::string(outcome.substr(2));
  return absl::Status(static_cast<absl::StatusCode>(outcome[1]), outcome.substr(2));
}

absl::Status CheckSameCall(const std::vector<std::string>& ranks) {
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (CallOf(ranks[rank]) == CallOf(ranks[0])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the ranks are in different calls: rank 0 in ", CallOf(ranks[0]),
                                                   ", rank ", rank, " in ", CallOf(ranks[rank])));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<absl::StatusOr<std::string>>> GatherOutcomes(ProcessGroup* group, absl::string_view call,
                                                                        const absl::StatusOr<std::string>& own) {
  if (!group) return std::vector<absl::StatusOr<std::string>>{own};
  absl::StatusOr<std::string> told = own;
  if (!own.ok()) told = Annotate(own.status(), NameOf(IdentityOfThisProcess(group->rank())));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, group->AllGatherBytes(Encoded(call, told)));
  LOCKSTEP_RETURN_IF_ERROR(CheckSameCall(gathered));
  std::vector<absl::StatusOr<std::string>> outcomes;
  for (const std::string& bytes : gathered) outcomes.push_back(Decoded(bytes));
  return outcomes;
}

absl::StatusOr<std::vector<std::string>> GatherAgreed(ProcessGroup* group, absl::string_view call,
                                                      const absl::StatusOr<std::string>& own) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto outcomes, GatherOutcomes(group, call, own));
  absl::Status first;
  int others = 0;
  std::vector<std::string> values;
  for (absl::StatusOr<std::string>& outcome : outcomes) {
    if (outcome.ok()) {
      values.push_back(*std::move(outcome));
    } else if (first.ok()) {
      first = outcome.status();
    } else {
      ++others;
    }
  }
  if (first.ok()) return values;
  if (others > 0) first = absl::Status(first.code(), absl::StrCat(first.message(), "; and ", others, " more"));
  if (own.ok()) launch::NoteErrorOfAnotherRank(first);
  return first;
}

absl::Status Agree(ProcessGroup* group, absl::string_view call, const absl::Status& own) {
  if (own.ok()) return GatherAgreed(group, call, std::string()).status();
  return GatherAgreed(group, call, own).status();
}

}  // namespace lockstep::comm
