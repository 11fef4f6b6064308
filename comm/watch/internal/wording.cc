#include "lockstep/comm/watch/internal/wording.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::internal {
namespace {

// Keeps the line readable in a group of hundreds of ranks.
constexpr size_t kMostNamed = 8;

std::string JoinFirst(const std::vector<std::string>& parts, absl::string_view separator) {
  const size_t named = std::min(parts.size(), kMostNamed);
  const std::string text = absl::StrJoin(parts.begin(), parts.begin() + named, separator);
  return named == parts.size() ? text : absl::StrCat(text, separator, "and ", parts.size() - named, " more");
}

std::string Ranks(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(absl::StrCat(rank));
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", JoinFirst(numbers, ", "));
}

}  // namespace

std::string NameOfCall(int64_t sequence, absl::string_view operation) {
  return absl::StrCat(operation.empty() ? "call" : operation, " #", sequence);
}

std::string LeftText(const RankIdentity& rank, int64_t last_sequence, absl::string_view last_operation) {
  if (last_sequence < 0) return absl::StrCat(NameOf(rank), " left the group before its first call");
  return absl::StrCat(NameOf(rank), " left the group after ", NameOfCall(last_sequence, last_operation));
}

std::string LostText(const RankIdentity& rank, const std::string& fate, const std::string& how) {
  return fate.empty() ? absl::StrCat(NameOf(rank), " was lost: ", how) : absl::StrCat(NameOf(rank), " ", fate);
}

std::string FailedText(const RankIdentity& rank, absl::string_view message) {
  return absl::StrCat(NameOf(rank), " failed: ", message);
}

std::string SilentText(const RankIdentity& rank) {
  return absl::StrCat(NameOf(rank), IsStopped(rank) ? " is stopped" : " does not answer (stopped, or unreachable)");
}

std::string LateText(const RankIdentity& rank, int64_t last_sequence, absl::string_view last_operation, bool in_it) {
  const std::string late = absl::StrCat(NameOf(rank), " has not begun it");
  if (last_sequence < 0) return absl::StrCat(late, ", nor any call before");
  return absl::StrCat(late, in_it ? ": it is still in " : ": its last call was ",
                      NameOfCall(last_sequence, last_operation));
}

std::string StallText(int64_t sequence, absl::string_view operation, absl::Duration lasted,
                      const std::vector<std::string>& reasons) {
  return absl::StrCat(NameOfCall(sequence, operation), " has lasted ",
                      absl::FormatDuration(absl::Trunc(lasted, absl::Seconds(1))), ": ",
                      reasons.empty() ? "every rank has begun it" : JoinFirst(reasons, "; "));
}

std::string TimeoutText(int64_t sequence, absl::string_view operation, absl::Duration timeout,
                        const std::vector<std::string>& reasons) {
  return absl::StrCat(NameOfCall(sequence, operation), " timed out after ", absl::FormatDuration(timeout), ": ",
                      reasons.empty() ? "every rank has begun it" : JoinFirst(reasons, "; "));
}

std::string MismatchText(int64_t sequence, const std::map<std::string, std::vector<int>>& ranks_by_fingerprint,
                         const std::vector<int>& silent) {
  std::vector<std::pair<std::vector<int>, std::string>> sides;
  for (const auto& entry : ranks_by_fingerprint) {
    sides.emplace_back(entry.second, entry.first);
    std::sort(sides.back().first.begin(), sides.back().first.end());
  }
  std::sort(sides.begin(), sides.end());
  std::vector<std::string> texts;
  for (const auto& side : sides) {
    texts.push_back(absl::StrCat(Ranks(side.first), side.first.size() == 1 ? " has " : " have ", side.second));
  }
  if (!silent.empty()) texts.push_back(absl::StrCat(Ranks(silent), " did not say"));
  return absl::StrCat("call #", sequence, " differs: ", JoinFirst(texts, "; "));
}

std::string MissingText(const std::vector<RankIdentity>& missing) {
  std::vector<std::string> names;
  for (const RankIdentity& rank : missing) names.push_back(NameOf(rank));
  return absl::StrCat("these ranks did not connect: ", JoinFirst(names, ", "));
}

}  // namespace lockstep::comm::internal
