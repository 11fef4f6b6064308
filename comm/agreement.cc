#include "lockstep/comm/agreement.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/launch/report/report.h"

namespace lockstep::comm {
namespace {

constexpr char kAgreedPayload[] = "lockstep.comm/agreed_error";

// The call, a byte for the status code, then the value, or the rank's name and its message.
std::string Encoded(absl::string_view call, const std::string& name, const absl::StatusOr<std::string>& outcome) {
  const std::string rest = outcome.ok() ? *outcome : absl::StrCat(name, "\n", outcome.status().message());
  return absl::StrCat(call, "\n", std::string(1, static_cast<char>(outcome.status().code())), rest);
}

absl::string_view CallOf(absl::string_view bytes) { return bytes.substr(0, bytes.find('\n')); }

absl::StatusOr<std::string> Decoded(absl::string_view bytes, size_t rank) {
  const absl::string_view outcome = bytes.substr(CallOf(bytes).size());
  if (outcome.size() < 2) return absl::InternalError("a rank sent no outcome; do all ranks run the same program?");
  if (outcome[1] == 0) return std::string(outcome.substr(2));
  const std::pair<absl::string_view, absl::string_view> error =
      absl::StrSplit(outcome.substr(2), absl::MaxSplits('\n', 1));
  absl::Status status(static_cast<absl::StatusCode>(outcome[1]), error.second);
  status.SetPayload(kAgreedPayload, absl::Cord(absl::StrCat(rank, " ", error.second)));
  return Annotate(status, error.first);
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
  const std::string name = own.ok() ? "" : NameOf(IdentityOfThisProcess(group->rank()));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> gathered, group->AllGatherBytes(Encoded(call, name, own)));
  LOCKSTEP_RETURN_IF_ERROR(CheckSameCall(gathered));
  std::vector<absl::StatusOr<std::string>> outcomes;
  for (size_t rank = 0; rank < gathered.size(); ++rank) outcomes.push_back(Decoded(gathered[rank], rank));
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
  if (others > 0) first = WithEnding(first, absl::StrCat("; and ", others, " more"));
  if (own.ok()) launch::RecordErrorOfAnotherRank(first);
  return first;
}

absl::Status Agree(ProcessGroup* group, absl::string_view call, const absl::Status& own) {
  if (own.ok()) return GatherAgreed(group, call, std::string()).status();
  return GatherAgreed(group, call, own).status();
}

std::optional<AgreedError> AgreedErrorOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kAgreedPayload);
  if (!payload) return std::nullopt;
  AgreedError error;
  const std::vector<std::string> fields = absl::StrSplit(std::string(*payload), absl::MaxSplits(' ', 1));
  if (fields.size() != 2 || !absl::SimpleAtoi(fields[0], &error.rank)) return std::nullopt;
  error.message = fields[1];
  return error;
}

}  // namespace lockstep::comm
