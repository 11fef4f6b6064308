#include "lockstep/launch/job/next_generation.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

std::string NumberText(int number, int least, const char* thing) {
  return absl::StrCat(number, " of at least ", least, " ", thing, least == 1 ? " is there" : "s are there");
}

// The processes that are ready, no more of a node than its ranks.
std::vector<int> Ready(const RankPlan& plan) {
  std::vector<int> ready = plan.SlotsIn(RankPlan::State::kReady), ranks;
  std::stable_sort(ready.begin(), ready.end(), [&](int a, int b) {
    const auto order = [&](int slot) {
      return plan.slots[slot].rank >= 0 ? plan.slots[slot].rank : std::numeric_limits<int>::max();
    };
    return order(a) < order(b);
  });
  std::vector<int> counts(plan.nodes.size());
  for (const int slot : ready) {
    const int index = plan.slots[slot].node;
    const RankPlan::Node& node = plan.nodes[index];
    if (node.leaves || counts[index] == node.ranks) continue;
    ++counts[index];
    ranks.push_back(slot);
  }
  return ranks;
}

// All nodes, also those of processes that are beyond the most ranks, or have done their work.
int NodesThere(const RankPlan& plan, std::vector<int> there) {
  for (const RankPlan::State state : {RankPlan::State::kDone, RankPlan::State::kFinished}) {
    const std::vector<int> done = plan.SlotsIn(state);
    there.insert(there.end(), done.begin(), done.end());
  }
  return plan.NodesOf(there);
}

}  // namespace

int LeastRanks(const std::vector<JoinOptions>& asks, const std::vector<int>& slots) {
  int least = 1;
  for (const int slot : slots) least = std::max(least, asks[slot].min_ranks);
  return least;
}

size_t MostRanks(const std::vector<JoinOptions>& asks, const std::vector<int>& slots) {
  size_t most = std::numeric_limits<size_t>::max();
  for (const int slot : slots) {
    if (const int asked = asks[slot].max_ranks; asked > 0) most = std::min<size_t>(most, asked);
  }
  return most;
}

NextGeneration NextOf(const RankPlan& plan, const std::vector<JoinOptions>& asks, int least_nodes) {
  NextGeneration next;
  next.slots = Ready(plan);
  int places = 0;
  for (const RankPlan::Node& node : plan.nodes) places += node.gone ? 0 : node.ranks;
  if (!plan.formed && static_cast<int>(next.slots.size()) < places) {
    if (plan.SomebodyComes()) return {};
    next.missing = NumberText(static_cast<int>(next.slots.size()), places, "rank");
    return next;
  }
  const int nodes = NodesThere(plan, next.slots);
  next.slots.resize(std::min(next.slots.size(), MostRanks(asks, next.slots)));
  const int least = LeastRanks(asks, next.slots), ranks = static_cast<int>(next.slots.size());
  if (ranks < least) {
    next.missing = NumberText(ranks, least, "rank");
  } else if (nodes < least_nodes) {
    next.missing = NumberText(nodes, least_nodes, "node");
  }
  return next;
}

int FreeLocalRank(const RankPlan& plan, int slot) {
  const RankPlan::Node& node = plan.nodes[plan.slots[slot].node];
  std::vector<bool> taken(node.ranks + 1);
  for (int i = node.first; i < node.first + node.slots; ++i) {
    if (plan.slots[i].local_rank >= 0) taken[plan.slots[i].local_rank] = true;
  }
  const int wished = slot - node.first;
  if (wished < node.ranks && !taken[wished]) return wished;
  return static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

}  // namespace lockstep::launch
