#include "lockstep/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"

namespace lockstep {
namespace {

// The optimal string alignment distance: edits that turn `a` into `b`, where a swap of two neighbours is one edit.
// R. A. Wagner and R. Lowrance, "An Extension of the String-to-String Correction Problem", 1975.
size_t Edits(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  }
  return edits[a.size()][b.size()];
}

bool Contains(absl::string_view a, absl::string_view b) {
  constexpr size_t kLeast = 3;
  return std::min(a.size(), b.size()) >= kLeast && (absl::StrContains(a, b) || absl::StrContains(b, a));
}

}  // namespace

std::optional<std::string> NearestName(absl::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 100;  // a longer argument is not a misspelled name, and the table of edits is a square
  if (name.size() > kLongest) return std::nullopt;
  const size_t most = std::max<size_t>(1, name.size() / 3);
  const std::string* nearest = nullptr;
  std::pair<bool, size_t> least;  // a name that contains the other counts only if none is close
  for (const std::string& candidate : candidates) {
    const size_t edits = Edits(name, candidate);
    const std::pair<bool, size_t> distance = {edits > most, edits};
    if ((edits > most && !Contains(candidate, name)) || (nearest && distance >= least)) continue;
    least = distance;
    nearest = &candidate;
  }
  return nearest ? std::optional<std::string>(*nearest) : std::nullopt;
}

}  // namespace lockstep
