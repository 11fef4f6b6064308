#include "lockstep/elastic/internal/shard_plan.h"

#include <stddef.h>

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"

namespace lockstep::elastic::internal {
namespace {

// A rank keeps so many equal shares at most for others on another node, which may be lost.
constexpr int64_t kMostShares = 2;

class Planner {
 public:
  Planner(const std::vector<int64_t>& sizes, const std::vector<int>& nodes)
      : sizes_(sizes),
        nodes_(nodes),
        all_(nodes.size()),
        kept_(nodes.size()),
        owned_(nodes.size()),
        keepers_(sizes.size()) {
    const auto ranks = static_cast<int64_t>(nodes.size());
    std::iota(all_.begin(), all_.end(), 0);
    limit_ = (2 * std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) + ranks - 1) / ranks;
    wanted_ = std::min<size_t>(nodes.size(), 2);
    one_node_ = absl::c_all_of(nodes, [&nodes](int node) { return node == nodes[0]; });
  }

  // Lets one more rank of `have` keep a parameter, if it is below the limit.
  void Keep(size_t parameter, const std::vector<int>& have) {
    if (IsComplete(parameter)) return;
    const int rank = Least(parameter, have, /*other_node=*/true);
    if (rank >= 0 && kept_[rank] + sizes_[parameter] <= limit_) Add(parameter, rank);
  }

  // Gives a parameter to the ranks that keep the least, on two nodes while a rank has no more than kMostShares.
  void Complete(size_t parameter) {
    while (!IsComplete(parameter)) {
      const int elsewhere = Least(parameter, all_, /*other_node=*/true);
      const bool fits = elsewhere >= 0 && kept_[elsewhere] < kMostShares * limit_;
      Add(parameter, fits ? elsewhere : Least(parameter, all_, /*other_node=*/false));
    }
  }

  // The keeper that owns less so far is the owner.
  Keepers ChooseOwner(size_t parameter) {
    Keepers chosen = {keepers_[parameter].front(), keepers_[parameter].back()};
    if (owned_[chosen.second] < owned_[chosen.owner]) std::swap(chosen.owner, chosen.second);
    owned_[chosen.owner] += sizes_[parameter];
    return chosen;
  }

 private:
  bool IsComplete(size_t parameter) const { return keepers_[parameter].size() == wanted_; }

  // Returns whether the rank may be a keeper beside the one that there may be.
  bool Fits(size_t parameter, int rank, bool other_node) const {
    if (keepers_[parameter].empty()) return true;
    const int first = keepers_[parameter][0];
    return other_node && !one_node_ ? nodes_[rank] != nodes_[first] : rank != first;
  }

  // The one of `ranks` that keeps the least, and fits; -1: none.
  int Least(size_t parameter, const std::vector<int>& ranks, bool other_node) const {
    int least = -1;
    for (const int rank : ranks) {
      if (Fits(parameter, rank, other_node) && (least < 0 || kept_[rank] < kept_[least])) least = rank;
    }
    return least;
  }

  void Add(size_t parameter, int rank) {
    keepers_[parameter].push_back(rank);
    kept_[rank] += sizes_[parameter];
  }

  const std::vector<int64_t>& sizes_;
  const std::vector<int>& nodes_;
  bool one_node_ = false;
  std::vector<int> all_;                   // ranks
  int64_t limit_ = 0;                      // of the elements that a rank keeps
  size_t wanted_ = 0;                      // keepers of a parameter
  std::vector<int64_t> kept_;              // the elements that each rank keeps so far
  std::vector<int64_t> owned_;             // and owns
  std::vector<std::vector<int>> keepers_;  // of each parameter, so far
};

}  // namespace

std::vector<Keepers> PlanShards(const std::vector<int64_t>& sizes, const std::vector<std::vector<int>>& have,
                                const std::vector<int>& nodes) {
  std::vector<size_t> largest_first(sizes.size());
  std::iota(largest_first.begin(), largest_first.end(), size_t{0});
  absl::c_stable_sort(largest_first, [&sizes](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  Planner planner(sizes, nodes);
  // One keeper of each parameter first: if two ranks kept the same ones up to the limit, they would have to take the
  // rest too, since a new rank can be only one of its keepers.
  for (int keeper = 0; keeper < 2; ++keeper) {
    for (const size_t parameter : largest_first) planner.Keep(parameter, have[parameter]);
  }
  for (const size_t parameter : largest_first) planner.Complete(parameter);
  std::vector<Keepers> keepers(sizes.size());
  for (const size_t parameter : largest_first) keepers[parameter] = planner.ChooseOwner(parameter);
  return keepers;
}

}  // namespace lockstep::elastic::internal
