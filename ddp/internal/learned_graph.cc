#include "lockstep/ddp/internal/learned_graph.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep::ddp::internal {

LearnedGraph::LearnedGraph(int rank, std::vector<std::string> names)
    : rank_(rank), names_(std::move(names)), expected_(names_.size()), remaining_(names_.size()) {}

absl::StatusOr<bool> LearnedGraph::Arrive(int parameter) {
  if (!known_) {
    ++expected_[parameter];
    return false;
  }
  if (remaining_[parameter] == 0) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank_, ": parameter ", names_[parameter], " got ",
                                                      expected_[parameter] + 1, " gradients in this backward and ",
                                                      expected_[parameter], " in the first: the graph is not static"));
  }
  return --remaining_[parameter] == 0;
}

void LearnedGraph::EndBackward() {
  if (!known_) std::fill(expected_.begin(), expected_.end(), 0);
}

std::vector<int> LearnedGraph::Unused() const {
  std::vector<int> unused;
  for (size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i] == 0) unused.push_back(static_cast<int>(i));
  }
  return unused;
}

}  // namespace lockstep::ddp::internal
