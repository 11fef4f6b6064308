// Nodes whose launchers reach the rendezvous, and whose ranks do not reach each other.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/simulator/node.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {
namespace {

constexpr int64_t kRunTimeWithCuts = 150 * kSecond;
constexpr int64_t kSilence = 1500;              // until ranks notice, and up to twice as long
constexpr int64_t kCutTime = 100 * kSecond;     // the longest
constexpr int64_t kReadmission = 20 * kSecond;  // within which a node takes part when its time is over

std::pair<int, int> PairOf(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

// The rule as launch's README has it.
int64_t TimeLeftOutMs(int times) { return 60 * kSecond * (times > 4 ? 16 : 1 << (times - 1)); }

}  // namespace

int64_t Simulation::RunTime() const { return config_.cuts ? kRunTimeWithCuts : kRunTime; }

// Between two nodes, or between one and all others. Then nothing else is cut for a while.
void Simulation::CutRanks() {
  const int node = static_cast<int>(Random(config_.agents));
  const int other = static_cast<int>((node + 1 + Random(config_.agents - 1)) % config_.agents);
  const bool all = Random(2) == 0;
  for (int i = 0; i < config_.agents; ++i) {
    if (i != node && (all || i == other)) cuts_.insert(PairOf(node, i));
  }
  Trace(absl::StrCat("ranks on node ", node, " do not reach ", all ? "any other" : absl::StrCat("node ", other)));
  for (const auto& each : nodes_) {
    for (int slot = 0; slot < static_cast<int>(each->processes.size()); ++slot) {
      const Process& process = each->processes[slot];
      if (process.alive && process.in != 0) AwaitSilence(each.get(), slot, process.in);
    }
  }
  After(kSecond + Random(kCutTime), [this] { cuts_.clear(); });
}

// One that has not answered may answer again by then.
void Simulation::AwaitSilence(Node* node, int slot, int64_t generation) {
  if (!config_.cuts) return;
  AfterIn(node, slot, kSilence + Random(kSilence), [this, node, slot, generation](Process* process) {
    if (process->in != generation || process->done || SilentHosts(*node, process->id, generation).empty()) return;
    SayReady(node, slot, generation, "a host does not answer");
  });
}

// The addresses of the other nodes of a generation that a node's ranks do not reach.
std::vector<std::string> Simulation::SilentHosts(const Node& node, int64_t process, int64_t generation) {
  std::vector<std::string> hosts;
  for (const auto& other : nodes_) {
    if (cuts_.count(PairOf(node.index, other->index)) == 0 || !other->steps) continue;
    const auto is_in = [&](const Process& process) {
      const auto& members = generations_[generation].processes;
      return absl::c_any_of(members, [&](const auto& member) { return member.second == process.id; });
    };
    if (!absl::c_any_of(other->processes, is_in)) continue;
    hosts.push_back(other->steps->state().address);
    generations_[generation].cuts[process].insert(PairOf(node.index, other->index));
    said_[node.id].insert(other->id);
    said_[other->id].insert(node.id);
  }
  return hosts;
}

// Who is left out, and for how long. A start of all ranks tries all nodes.
void Simulation::AuditLeftOut(const JobState& job) {
  if (std::exchange(cuts_start_, job.ranks.start) != job.ranks.start) left_out_.clear();
  std::map<std::string, LeftOut> out;
  for (const auto& host : job.ranks.cuts.left_out) {
    if (!host.waits) continue;
    const std::string& agent = host.host.agent;
    const auto before = left_out_.find(agent);
    const bool is_new = before == left_out_.end() || before->second.times != host.times;
    out[agent] = is_new ? LeftOut{host.times, now()} : before->second;
    if (said_[agent].empty()) Violation(absl::StrCat(agent, " is left out, and nobody says that it does not answer"));
    const bool goes_on = job.phase == JobPhase::kRunning;
    if (goes_on && IsMember(job, agent)) Violation(absl::StrCat(agent, " is left out, and takes part"));
  }
  const bool all_are_there =
      absl::c_none_of(nodes_, [](const auto& node) { return node->vanished || node->signalled; });
  const int left = static_cast<int>(posts_.size() - out.size());
  if (out.size() > left_out_.size() && all_are_there && job.limits.number == 0 && left < MinNodes(job)) {
    Violation(absl::StrCat(out.size(), " nodes are left out, and ", left, " are left"));
  }
  for (const auto& [agent, since] : left_out_) {
    if (out.count(agent) != 0 || posts_.count(agent) == 0 || job.phase != JobPhase::kRunning || since.evicted) continue;
    const bool is_over = now() >= since.since_ms + TimeLeftOutMs(since.times) - 2 * kSlowest;
    const bool others_are_out = absl::c_all_of(said_[agent], [&](const std::string& other) {
      return out.count(other) != 0 || posts_.count(other) == 0 || !IsMember(job, other);
    });
    const bool is_late = now() > since.since_ms + TimeLeftOutMs(since.times) + kReadmission;
    if (is_late && all_are_there && !config_.leader_can_change) {
      Violation(absl::StrCat(agent, " is not tried again in time"));
    }
    if (!is_over && !others_are_out) Violation(absl::StrCat(agent, " is taken in again before its time"));
  }
  left_out_ = std::move(out);
}

// The nodes of a new generation reach each other, as far as the ranks of the one before knew, if enough of them do.
void Simulation::AuditCuts(int64_t generation) {
  const auto before = generations_.find(generation - 1);
  if (before == generations_.end() || before->second.cuts.empty()) return;
  std::set<std::pair<int, int>> cuts;
  for (const auto& [process, said] : before->second.cuts) cuts.insert(said.begin(), said.end());
  if (before->second.leader_epoch != leader_epoch_ || decision_.limits.number > 0) return;
  std::vector<int> nodes;
  for (const auto& node : nodes_) {
    if (node->vanished || node->signalled || IsDrained(decision_, node->id)) return;  // it may not have been heard
    const RankPlan& plan = decision_.ranks;
    const bool is_in =
        absl::c_any_of(plan.members, [&](int slot) { return plan.nodes[plan.slots[slot].node].agent == node->id; });
    if (is_in) nodes.push_back(node->index);
  }
  const auto reach = [&](int subset) {
    return absl::c_none_of(cuts, [&](const std::pair<int, int>& cut) {
      return (subset >> cut.first & 1) != 0 && (subset >> cut.second & 1) != 0;
    });
  };
  int all = 0;
  for (const int node : nodes) all |= 1 << node;
  if (reach(all)) return;
  for (int subset = 0; subset <= all; ++subset) {
    if ((subset & all) != subset || !reach(subset)) continue;
    if (__builtin_popcount(static_cast<unsigned>(subset)) < MinNodes(decision_)) continue;
    return Violation(absl::StrCat("generation ", generation, " has nodes that do not reach each other"));
  }
}

}  // namespace lockstep::launch
