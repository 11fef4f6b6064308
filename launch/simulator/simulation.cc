#include "lockstep/launch/simulator/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/simulator/node.h"

namespace lockstep::launch {

Simulation::Simulation(const Config& config) : Engine(config, absl::Milliseconds(1)), config_(config) {
  for (int i = 0; i < config.agents; ++i) nodes_.push_back(std::make_unique<Node>(i, absl::StrCat("agent", i)));
  limits_.max_nodes = std::max(1, config.agents - static_cast<int>(Random(5) == 0));
  limits_.min_nodes = static_cast<int>(1 + Random(limits_.max_nodes));
  limits_.max_restarts = static_cast<int>(Random(4));
  if (config.min_nodes > 0) {
    limits_.max_nodes = config.agents;
    limits_.min_nodes = config.min_nodes;
    limits_.max_restarts = 3;
  }
  limits_.program.words = {"train"};
  limits_.join_timeout = absl::Seconds(60);
  limits_.last_call = absl::Seconds(config.min_nodes > 0 ? 60 : 3);
  if (!config.leader_can_change) limits_.anchor = nodes_[0]->id;
  if (config.ranks_stay) agrees_ = Random(2) == 0;
}

Simulation::~Simulation() = default;

// Mostly a few milliseconds, and sometimes up to kSlowest.
int64_t Simulation::Delay() {
  if (config_.delay_ms > 0) return config_.delay_ms;
  return Random(20) == 0 ? Random(kSlowest) : Random(20);
}

Simulation::Node* Simulation::Leader() { return leader_ < 0 ? nullptr : nodes_[leader_].get(); }

// The agent that serves the others over TCP hears itself.
bool Simulation::ReachesStore(const Node& node) const {
  return node.alive && (!node.cut || (!config_.leader_can_change && node.index == leader_));
}

bool Simulation::Reachable(const Node& node) const { return node.alive && !node.cut; }

simulator::Report Simulation::Run() {
  for (const auto& node : nodes_) {
    After(node->index == 0 ? 0
          : Random(5) == 0 ? Random(10 * kSecond)
                           : Random(kSecond),
          [this, n = node.get()] { Join(n); });
  }
  if (config_.crash_ms >= 0) After(config_.crash_ms, [this] { Crash(nodes_.back().get()); });
  if (config_.stranger) After(static_cast<int64_t>(config_.seed) * 7919 % kFaultTime, [this] { JoinStranger(); });
  if (config_.cuts) After(static_cast<int64_t>(config_.seed) * 6271 % kFaultTime, [this] { CutRanks(); });
  for (int i = 0; i < config_.faults; ++i) After(Random(kFaultTime), [this] { Fault(); });
  const auto crash = [this](int agent) { Crash(nodes_[agent].get()); };
  RunEvents(kHorizon, kMostEvents * config_.agents, crash, [this] {
    AuditWaiting();
    report_.states.insert(StateNow());
    return true;
  });
  if (report_.violation.empty()) AuditEnd();
  report_.counts["messages"] = messages_;
  report_.counts["generations"] = static_cast<int64_t>(formed_.size());
  report_.counts["generations of ranks that stay"] = static_cast<int64_t>(generations_.size());
  return report_;
}

// --- Nodes ---

void Simulation::Join(Node* node) {
  if (node->steps) return;
  AgentState state;
  state.host = absl::StrCat("host", node->index);
  state.address = absl::StrCat("10.0.0.", node->index);
  state.program = limits_.program;
  state.ranks = static_cast<int>(1 + Random(3));
  if (config_.ranks_stay) state.spares = static_cast<int>(Random(2));
  node->steps.emplace(node->id, state);
  node->port = 1000 * (node->index + 1);
  node->steps->OnPort(node->port);
  node->alive = true;
  Trace(absl::StrCat(node->id, " joins"));
  growth_.last_join_ms = now();
  if (!config_.leader_can_change && (!Reachable(*Leader()) || Leader()->returned)) {
    After(absl::ToInt64Milliseconds(limits_.join_timeout), [this, node] { LoseRendezvous(node, node->epoch); });
    return;
  }
  Post(node);
  After(Delay(), [this, node] {
    if (leader_ < 0) ElectLeader();
    DeliverDecision(node);
  });
}

void Simulation::Fault() {
  Node* node = nodes_[Random(config_.agents)].get();
  if (Leader() && Random(4) == 0) node = Leader();
  switch (Random(8)) {
    case 0:
      return Crash(node);
    case 1:
      return Cut(node);
    case 2:
      return Signal(node);
    case 3:
      return Random(2) == 0 ? Drain(node) : Resize(node);
    default:
      return FailRank(node);
  }
}

void Simulation::Crash(Node* node) {
  if (!node->alive || node->returned) return;
  Trace(absl::StrCat(node->id, " crashes"));
  node->alive = node->running = false;
  node->gone_ms = now();
  node->slots.reset();
  node->processes.clear();
  node->vanished = true;
  first_failure_[decision_.start] = "?";
  const int64_t epoch = ++node->epoch;
  ++node->running_number;
  After(kClosedEviction + Random(500), [this, node, epoch] { Evict(node, epoch); });
  if (!config_.leader_can_change && node->index == leader_) {
    for (const auto& other : nodes_) {
      After(kClosedGivesUp, [this, n = other.get(), e = other->epoch] { LoseRendezvous(n, e); });
    }
  }
}

void Simulation::Cut(Node* node) {
  if (!node->alive || node->cut || node->returned) return;
  Trace(absl::StrCat(node->id, " is cut off"));
  node->cut = node->vanished = true;
  node->cut_ms = node->gone_ms = now();
  first_failure_[decision_.start] = "?";
  const int64_t epoch = ++node->epoch;
  const int64_t duration = Random(12 * kSecond);
  const bool serves = !config_.leader_can_change && node->index == leader_;
  if (!serves) After(kEviction, [this, node, epoch] { Evict(node, epoch); });
  // A launcher that is stopped for a while does not notice.
  node->knows_cut = !config_.leader_can_change || Random(2) == 0;
  if (node->knows_cut && !serves) After(kAgentIsAway, [this, node, epoch] { RecordSilence(node, epoch); });
  if (!config_.leader_can_change) After(kAgentGivesUp, [this, node, epoch] { LoseRendezvous(node, epoch); });
  After(duration, [this, node] { Restore(node); });
  if (config_.leader_can_change || node->index != leader_) return;
  for (const auto& other : nodes_) {
    if (other.get() == node) continue;
    After(kAgentIsAway, [this, node, epoch, n = other.get(), e = other->epoch] {
      if (node->epoch == epoch) RecordSilence(n, e);
    });
    After(kAgentGivesUp, [this, node, epoch, n = other.get(), e = other->epoch] {
      if (node->epoch == epoch) LoseRendezvous(n, e);
    });
    After(kEviction, [this, node, epoch, n = other.get()] {
      if (node->epoch == epoch) Evict(n, n->epoch);
    });
  }
}

void Simulation::Restore(Node* node) {
  if (!node->cut) return;
  node->cut = false;
  if (!node->alive || node->returned) return;
  ++node->epoch;
  Trace(absl::StrCat(node->id, " is back"));
  if (config_.leader_can_change || !Leader()->cut) node->steps->OnReach(true);
  Post(node);
  After(Delay(), [this, node] { DeliverDecision(node); });
  if (node->index == leader_) After(Delay(), [this] { Look(); });
  for (const auto& other : nodes_) {
    const bool was_not_heard = !config_.leader_can_change && node->index == leader_ && other.get() != node;
    if (!was_not_heard || !Reachable(*other) || other->returned || !other->steps) continue;
    other->steps->OnReach(true);
    Post(other.get());
    After(Delay(), [this, n = other.get()] { DeliverDecision(n); });
  }
  if (!config_.leader_can_change && (!Leader()->alive || Leader()->returned)) {
    After(kClosedGivesUp, [this, node, epoch = node->epoch] { LoseRendezvous(node, epoch); });
  }
}

// The agent ends its ranks, and tries to come back.
void Simulation::RecordSilence(Node* node, int64_t epoch) {
  if (node->epoch != epoch || !node->alive || node->returned || !node->steps) return;
  Trace(absl::StrCat(node->id, " knows that it is out of reach"));
  node->steps->OnReach(false);
  node->gone_ms = now();
  AfterChange(node);
}

void Simulation::LoseRendezvous(Node* node, int64_t epoch) {
  if (node->epoch != epoch || !node->alive || node->returned || !node->steps) return;
  if (!config_.leader_can_change && node->index == leader_) return;  // it serves itself
  node->steps->OnLost(absl::UnavailableError(kLost));
  AfterChange(node);
}

void Simulation::Signal(Node* node) {
  if (!node->alive || node->returned || node->ending) return;
  Trace(absl::StrCat(node->id, " gets a signal"));
  node->signalled = true;
  first_failure_[decision_.start] = "?";
  if (!node->running) {
    node->steps->OnSignal(15, "received signal 15");
    Post(node);
    AfterChange(node);
    return;
  }
  node->ending = true;
  node->steps->OnSignal(15, "received signal 15");
  Post(node);
  After(Random(kGrace), [this, node, number = node->running_number] {
    if (node->running_number == number) EndRanks(node, false, {});
  });
}

// Somebody asks this node to take another one, or itself, out of the job.
void Simulation::Drain(Node* node) {
  if (!node->alive || node->returned) return;
  const Node& other = *nodes_[Random(config_.agents)];
  Trace(absl::StrCat(node->id, " is told to drain ", other.id));
  node->steps->OnDrain(other.id);
  Post(node);
}

// Somebody asks this node for other limits of the job.
void Simulation::Resize(Node* node) {
  if (!node->alive || node->returned) return;
  const int max_nodes = static_cast<int>(1 + Random(config_.agents)),
            min_nodes = static_cast<int>(1 + Random(max_nodes));
  Trace(absl::StrCat(node->id, " is told to resize to ", min_nodes, " to ", max_nodes));
  node->steps->OnResize(min_nodes, max_nodes);
  Post(node);
}

void Simulation::FailRank(Node* node) {
  if (!node->alive || node->returned || !node->running || node->ending) return;
  if (node->slots) {
    FailAnyProcess(node);
  } else {
    FailNode(node, false);
  }
}

// A rank of the node fails, and all of them are ended.
void Simulation::FailNode(Node* node, bool consequence) {
  if (!node->alive || node->returned || !node->running || node->ending) return;
  Trace(absl::StrCat("a rank of ", node->id, " fails", consequence ? " because of another" : ""));
  node->ending = true;
  Failure failure;
  failure.status = absl::UnknownError(absl::StrCat("rank on ", node->id, " failed"));
  failure.consequence = consequence;
  // Others may notice the end of a rank before its launcher does.
  const int64_t seen_ms = now() + (consequence ? 0 : Random(60));
  failure.time_ns = seen_ms * 1000000;
  failed_[node->start].insert(node->index);
  if (!consequence) {
    // Either of two failures at one time may be named.
    std::string& hosts = first_failure_[node->start];
    const auto [first, is_first] = failures_.emplace(node->start, seen_ms);
    if (seen_ms < first->second && !absl::StrContains(hosts, "?")) hosts.clear();
    if (is_first || seen_ms <= first->second) absl::StrAppend(&hosts, " host", node->index);
    first->second = std::min(first->second, seen_ms);
  }
  const int64_t number = node->running_number;
  After(kSettle, [this, node, number] {
    if (node->running_number != number) return;
    node->steps->OnFailing();
    Post(node);
  });
  After(kSettle + Random(kGrace), [this, node, number, failure] {
    if (node->running_number == number) EndRanks(node, false, failure);
  });
  for (const auto& other : nodes_) {
    const bool stays = other->slots && other->slots->plan().stays;
    if (consequence || stays || other->start != node->start || Random(3) == 0) continue;
    After(5 + Random(50), [this, n = other.get(), start = node->start] {
      const bool stays = n->slots && n->slots->plan().stays;
      if (n->start == start && !stays) FailNode(n, true);
    });
  }
}

void Simulation::EndRanks(Node* node, bool succeeded, Failure failure) {
  node->running = node->ending = false;
  node->gone_ms = now();
  node->slots.reset();
  node->processes.clear();
  ++node->running_number;
  Trace(absl::StrCat("ranks of ", node->id, " have ended", succeeded ? " with success" : ""));
  if (succeeded) succeeded_[node->start][node->id] = true;
  node->steps->OnEnd(succeeded, std::move(failure));
  if (node->steps->wants_port()) node->steps->OnPort(++node->port);
  Post(node);
  AfterChange(node);
}

void Simulation::StartRanks(Node* node, const NodeStart& start) {
  Trace(absl::StrCat(node->id, " starts generation ", start.number));
  AuditStart(*node, start);
  node->running = true;
  node->ending = false;
  node->evicted_in_run = node->evicted_ms >= entered_ms_.at(node->steps->state().entry);
  node->start = start.number;
  const int64_t number = ++node->running_number;
  Post(node);
  if (config_.ranks_stay) {
    StartProcesses(node);
    Apply(node);
    return;
  }
  After(kRunTime + Random(3 * kSecond), [this, node, number] {
    if (node->running_number == number && !node->ending) EndRanks(node, true, {});
  });
}

void Simulation::AfterChange(Node* node) {
  if (const std::optional<NodeStart> start = node->steps->TakeStart()) StartRanks(node, *start);
  if (node->running && !node->ending && node->steps->MustEnd()) {
    AuditEnding(*node);
    node->ending = true;
    After(Random(kGrace), [this, node, number = node->running_number] {
      if (node->running_number == number) EndRanks(node, false, {});
    });
  }
  if (node->running || node->returned) return;
  if (const std::optional<absl::Status> result = node->steps->Result()) Return(node, *result);
}

void Simulation::Return(Node* node, absl::Status result) {
  Trace(absl::StrCat(node->id, " returns ", result.ToString()));
  const bool serves = !config_.leader_can_change && node->index == leader_;
  if (serves && decision_.phase != JobPhase::kDone) Violation("the node that serves returns before the job is done");
  node->returned = node->vanished = true;
  node->result = std::move(result);
  ++node->epoch;
  if (!config_.leader_can_change && node->index == leader_) {
    for (const auto& other : nodes_) {
      After(kLeaveTimeout, [this, n = other.get()] { LoseRendezvous(n, n->epoch); });
    }
  }
  After(Delay(), [this, node] {
    posts_.erase(node->id);
    if (node->index == leader_) ElectLeader();
    Look();
  });
}

}  // namespace lockstep::launch
