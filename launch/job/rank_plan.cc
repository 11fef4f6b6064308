#include "lockstep/launch/job/rank_plan.h"

#include <stddef.h>

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace lockstep::launch {

int RankPlan::NodeOf(int64_t entry) const {
  const auto found = absl::c_find_if(nodes, [&](const Node& node) { return node.entry == entry; });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::vector<int> RankPlan::SlotsIn(State state) const {
  std::vector<int> found;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].state == state) found.push_back(static_cast<int>(i));
  }
  return found;
}

// When a member has finished, the job is about to end. Only what was to be done in a slot is left.
bool RankPlan::MayStart(const Slot& slot) const {
  return !nodes[slot.node].leaves && (finished_members == 0 || slot.owes);
}

bool RankPlan::SomebodyComes() const {
  return absl::c_any_of(slots, [this](const Slot& slot) {
    if (slot.state == State::kAwaited) return MayStart(slot);
    return slot.state == State::kStarting && !nodes[slot.node].leaves;
  });
}

bool RankPlan::IsOfLastGeneration(const Slot& slot) const {
  const bool is_there = slot.state == State::kReady || slot.state == State::kDone;
  return slot.state == State::kMember || (is_there && slot.rank >= 0);
}

int RankPlan::CountOnNode(const std::vector<int>& those, int node) const {
  return static_cast<int>(absl::c_count_if(those, [&](int slot) { return slots[slot].node == node; }));
}

int RankPlan::NodesOf(const std::vector<int>& those) const {
  std::set<int> found;
  for (const int slot : those) found.insert(slots[slot].node);
  return static_cast<int>(found.size());
}

bool RankPlan::HasMembers(int node) const {
  return CountOnNode(SlotsIn(State::kMember), node) + CountOnNode(SlotsIn(State::kDone), node) > 0;
}

std::string RankPlan::CausesText() const {
  std::string text;
  for (const Failure& cause : causes) absl::StrAppend(&text, text.empty() ? "" : "; ", cause.status.message());
  const int more = failure_count - static_cast<int>(causes.size());
  if (more > 0) absl::StrAppend(&text, "; and ", more, " more");
  return text;
}

std::string RankPlan::Reason() const { return causes.empty() ? order_reason : CausesText(); }

RankGeneration RankPlan::GenerationOf(int slot) const {
  RankGeneration ranks;
  ranks.number = generation;
  ranks.rank = slots[slot].rank;
  ranks.world_size = static_cast<int>(members.size());
  ranks.local_rank = slots[slot].local_rank;
  ranks.local_world_size = CountOnNode(members, slots[slot].node);
  std::set<int> before;
  for (const int member : members) {
    if (slots[member].node == slots[slot].node) break;
    before.insert(slots[member].node);
  }
  ranks.node_rank = static_cast<int>(before.size());
  ranks.nnodes = NodesOf(members);
  ranks.master_addr = master_addr;
  ranks.master_port = master_port;
  ranks.reason = reason;
  ranks.failure = failure;
  return ranks;
}

}  // namespace lockstep::launch
