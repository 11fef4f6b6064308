#include "lockstep/elastic/internal/vote.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::elastic::internal {
namespace {

// Tensors that a sentence names.
constexpr size_t kMostNames = 3;

// The names of the tensors in which not all of these ranks are equal.
std::string Difference(const std::vector<const std::vector<uint64_t>*>& ranks, const std::vector<std::string>& names) {
  std::vector<std::string> differ;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::any_of(ranks.begin(), ranks.end(), [&](const auto* rank) { return (*rank)[i] != (*ranks[0])[i]; })) {
      differ.push_back(names[i]);
    }
  }
  const size_t more = differ.size() - std::min(differ.size(), kMostNames);
  differ.resize(differ.size() - more);
  return absl::StrCat(absl::StrJoin(differ, ", "), more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

}  // namespace

Vote CountVotes(const std::vector<std::vector<uint64_t>>& hashes, const std::vector<std::string>& names) {
  Vote vote;
  for (const auto& candidate : hashes) {
    if (std::count(hashes.begin(), hashes.end(), candidate) * 2 <= static_cast<int64_t>(hashes.size())) continue;
    for (size_t rank = 0; rank < hashes.size(); ++rank) {
      (hashes[rank] == candidate ? vote.majority : vote.outvoted).push_back(static_cast<int>(rank));
    }
    std::vector<std::string> texts;
    for (const int rank : vote.outvoted) {
      texts.push_back(absl::StrCat("rank ", rank, " differs in ", Difference({&candidate, &hashes[rank]}, names)));
    }
    vote.difference = absl::StrJoin(texts, "; ");
    return vote;
  }
  std::vector<const std::vector<uint64_t>*> all;
  for (const auto& rank : hashes) {
    vote.outvoted.push_back(static_cast<int>(all.size()));
    all.push_back(&rank);
  }
  vote.difference = absl::StrCat("ranks ", absl::StrJoin(vote.outvoted, ", "), " differ in ", Difference(all, names));
  return vote;
}

}  // namespace lockstep::elastic::internal
