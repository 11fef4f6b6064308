#include "lockstep/tools/launch/simulator/internal/simulation.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep::launch::internal {
namespace {

using AgentPhase = AgentState::Phase;
using JobPhase = JobState::Phase;

constexpr char kLost[] = "the rendezvous is lost";
constexpr int64_t kSecond = 1000;
constexpr int64_t kSlowest = kSecond;                           // message
constexpr int64_t kHorizon = 3600 * kSecond;                    // nobody may still wait then
constexpr int64_t kMostEvents = 20000;                          // nor may so much happen
constexpr int64_t kFaultTime = 20 * kSecond;                    // within which faults happen
constexpr int64_t kRunTime = 8 * kSecond;                       // of the ranks
constexpr int64_t kSettle = 100;                                // until a failed rank is reported
constexpr int64_t kGrace = 2 * kSecond;                         // the most that ranks need to end
constexpr int64_t kAgentIsAway = 1500;                          // after silence
constexpr int64_t kAgentGivesUp = 4 * kAgentIsAway;             // over TCP; with etcd it tries on
constexpr int64_t kEviction = 2250;                             // of a silent agent
constexpr int64_t kLeaveTimeout = 10 * kSecond;                 // of an agent that serves the others
constexpr int64_t kClosedGivesUp = 300, kClosedEviction = 400;  // after a connection has closed

}  // namespace

struct Simulation::Node {
  Node(int index, std::string id) : index(index), id(std::move(id)) {}

  const int index;
  const std::string id;
  std::optional<AgentSteps> steps;  // from its start on
  bool alive = false;
  bool cut = false;       // nothing arrives from it or at it
  int64_t cut_ms = 0;     // since when
  bool knows_cut = true;  // it ends its ranks in time
  bool signalled = false;
  bool vanished = false;  // it has died, was cut off or has returned
  int64_t leaves_since_ms = -1;
  bool evicted = false;         // the store has dropped its post
  bool evicted_in_run = false;  // since its ranks started
  bool returned = false;
  bool running = false;        // ranks run or are being ended
  bool ending = false;         // and this has begun
  int64_t running_number = 0;  // of the start, so that events of an earlier one have no effect
  int64_t generation = 0;
  int64_t epoch = 0;  // changes with each cut, crash and return
  uint64_t posts = 0;
  uint64_t decision_seen = 0;
  int port = 0;
  absl::Status result;
};

Simulation::Simulation(const Config& config) : config_(config), random_(config.seed) {
  for (int i = 0; i < config.agents; ++i) nodes_.push_back(std::make_unique<Node>(i, absl::StrCat("agent", i)));
  limits_.max_nodes = std::max(1, config.agents - static_cast<int>(Random(5) == 0));
  limits_.min_nodes = static_cast<int>(1 + Random(limits_.max_nodes));
  limits_.max_restarts = static_cast<int>(Random(4));
  if (config.min_nodes > 0) {
    limits_.max_nodes = config.agents;
    limits_.min_nodes = config.min_nodes;
    limits_.max_restarts = 3;
  }
  limits_.join_timeout = absl::Seconds(60);
  limits_.last_call = absl::Seconds(config.min_nodes > 0 ? 60 : 3);
  if (!config.leader_can_change) limits_.anchor = nodes_[0]->id;
}

Simulation::~Simulation() = default;

void Simulation::Trace(const std::string& text) const {
  if (config_.trace) std::cout << now_ms_ << " ms: " << text << "\n";
}

int64_t Simulation::Random(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }

void Simulation::After(int64_t ms, std::function<void()> run) {
  Event event;
  event.at_ms = now_ms_ + ms;
  event.order = ++order_;
  event.run = std::move(run);
  events_.push(std::move(event));
}

// Mostly a few milliseconds, and sometimes up to kSlowest.
int64_t Simulation::Delay() {
  if (config_.delay_ms > 0) return config_.delay_ms;
  return Random(20) == 0 ? Random(kSlowest) : Random(20);
}

Simulation::Node* Simulation::Leader() { return leader_ < 0 ? nullptr : nodes_[leader_].get(); }

// The agent that serves the others over TCP hears itself.
bool Simulation::HearsStore(const Node& node) const {
  return node.alive && (!node.cut || (!config_.leader_can_change && node.index == leader_));
}

bool Simulation::Reachable(const Node& node) const { return node.alive && !node.cut; }

Simulation::Report Simulation::Run() {
  for (const auto& node : nodes_) {
    After(node->index == 0 ? 0
          : Random(5) == 0 ? Random(10 * kSecond)
                           : Random(kSecond),
          [this, n = node.get()] { Join(n); });
  }
  if (config_.crash_ms >= 0) After(config_.crash_ms, [this] { Crash(nodes_[config_.crash_agent].get()); });
  for (int i = 0; i < config_.faults; ++i) After(Random(kFaultTime), [this] { Fault(); });
  while (!events_.empty() && report_.violation.empty()) {
    if (report_.events == config_.crash_event) Crash(nodes_[config_.crash_agent].get());
    if (report_.events == config_.second_crash_event) Crash(nodes_[config_.second_crash_agent].get());
    const Event event = events_.top();
    events_.pop();
    now_ms_ = event.at_ms;
    ++report_.events;
    if (now_ms_ > kHorizon || report_.events > kMostEvents * config_.agents) break;
    event.run();
    AuditWaiting();
  }
  if (report_.violation.empty()) AuditEnd();
  report_.generations = static_cast<int64_t>(formed_.size());
  return report_;
}

// --- The store ---

void Simulation::Post(Node* node) {
  const uint64_t number = ++node->posts;
  const AgentState state = node->steps->state();
  ++report_.messages;
  After(Delay(), [this, node, number, state] {
    const bool host_is_cut = !config_.leader_can_change && Leader()->cut && node->index != leader_;
    if (!(HearsStore(*node) || !node->alive) || node->returned || host_is_cut) return;
    uint64_t& known = post_numbers_[node->id];
    if (number <= known) return;
    if (!node->alive && node->evicted) return;
    known = number;
    posts_[node->id] = state;
    node->evicted = false;
    const bool counts = decision_.phase == JobPhase::kRunning && decision_.generation == state.generation;
    if (counts && state.phase == AgentPhase::kSucceeded) told_success_[state.generation].insert(node->id);
    if (leader_ < 0) ElectLeader();
    Look();
  });
}

void Simulation::Look() {
  Node* leader = Leader();
  if (!leader || !HearsStore(*leader) || leader->returned) return;
  if (!coordinator_) coordinator_.emplace(limits_, decision_, Now());
  const bool changed = coordinator_->Update(posts_, Now());
  LookAt(coordinator_->next_look());
  AuditRequests(coordinator_->job());
  if (!changed) return;
  // Decisions of one leader arrive in their order.
  decided_ms_ = std::max(decided_ms_, now_ms_ + (config_.leader_can_change ? Delay() : 0));
  const JobState& job = coordinator_->job();
  After(decided_ms_ - now_ms_, [this, job, told = HasToldSuccess(job.generation), epoch = leader_epoch_] {
    if (epoch != leader_epoch_) return;
    decision_ = job;
    ++decisions_;
    AuditDecision(job, told);
    Broadcast();
  });
}

void Simulation::LookAt(absl::Time time) {
  if (time == absl::InfiniteFuture()) return;
  const int64_t at = absl::ToInt64Milliseconds(absl::Ceil(time - absl::UnixEpoch(), absl::Milliseconds(1)));
  if (look_ms_ > now_ms_ && look_ms_ <= at) return;
  look_ms_ = at;
  After(std::max<int64_t>(at - now_ms_, 0), [this] { Look(); });
}

void Simulation::Broadcast() {
  for (const auto& node : nodes_) {
    ++report_.messages;
    After(node->index == leader_ && !config_.leader_can_change ? 0 : Delay(),
          [this, n = node.get()] { DeliverDecision(n); });
  }
}

void Simulation::DeliverDecision(Node* node) {
  const bool host_is_cut = !config_.leader_can_change && Leader()->cut && node->index != leader_;
  if (!HearsStore(*node) || host_is_cut || node->returned || !node->steps || node->decision_seen == decisions_) return;
  node->decision_seen = decisions_;
  const AgentState before = node->steps->state();
  node->steps->OnJob(decision_);
  if (node->steps->wants_port() && !node->running) node->steps->OnPort(++node->port);
  const AgentState& after = node->steps->state();
  if (before.phase != after.phase || before.generation != after.generation) Post(node);
  AfterChange(node);
  const bool is_over = decision_.phase != JobPhase::kRunning || decision_.generation != node->generation;
  if (node->running && !node->ending && is_over) {
    Violation(absl::StrCat(node->id, " sees that its generation ends, and its ranks run on"));
  }
}

void Simulation::ElectLeader() {
  if (!config_.leader_can_change) return;
  const Node* leader = Leader();
  if (leader && !leader->evicted && !leader->returned) return;
  ++leader_epoch_;
  coordinator_.reset();
  leader_ = -1;
  for (const auto& node : nodes_) {
    if (!Reachable(*node) || node->returned || !node->steps || posts_.count(node->id) == 0) continue;
    leader_ = node->index;
    break;
  }
  Trace(absl::StrCat("leader is ", leader_));
  Look();
}

void Simulation::Evict(Node* node, int64_t epoch) {
  if (node->epoch != epoch) return;
  Trace(absl::StrCat(node->id, " is evicted"));
  node->evicted = node->evicted_in_run = true;
  posts_.erase(node->id);
  if (node->index == leader_) ElectLeader();
  Look();
}

// --- Nodes ---

void Simulation::Join(Node* node) {
  if (node->steps) return;
  AgentState state;
  state.host = absl::StrCat("host", node->index);
  state.address = absl::StrCat("10.0.0.", node->index);
  state.ranks = static_cast<int>(1 + Random(3));
  node->steps.emplace(node->id, state);
  node->port = 1000 * (node->index + 1);
  node->steps->OnPort(node->port);
  node->alive = true;
  Trace(absl::StrCat(node->id, " joins"));
  report_.last_join_ms = now_ms_;
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
      return FailRank(node, false);
  }
}

void Simulation::Crash(Node* node) {
  if (!node->alive || node->returned) return;
  Trace(absl::StrCat(node->id, " crashes"));
  node->alive = node->running = false;
  node->vanished = true;
  first_failure_[decision_.generation] = "?";
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
  node->cut_ms = now_ms_;
  first_failure_[decision_.generation] = "?";
  const int64_t epoch = ++node->epoch;
  const int64_t duration = Random(12 * kSecond);
  const bool serves = !config_.leader_can_change && node->index == leader_;
  if (!serves) After(kEviction, [this, node, epoch] { Evict(node, epoch); });
  // A launcher that is stopped for a while does not notice.
  node->knows_cut = !config_.leader_can_change || Random(2) == 0;
  if (node->knows_cut && !serves) After(kAgentIsAway, [this, node, epoch] { NoteSilence(node, epoch); });
  if (!config_.leader_can_change) After(kAgentGivesUp, [this, node, epoch] { LoseRendezvous(node, epoch); });
  After(duration, [this, node] { Restore(node); });
  if (config_.leader_can_change || node->index != leader_) return;
  for (const auto& other : nodes_) {
    if (other.get() == node) continue;
    After(kAgentIsAway, [this, node, epoch, n = other.get(), e = other->epoch] {
      if (node->epoch == epoch) NoteSilence(n, e);
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
void Simulation::NoteSilence(Node* node, int64_t epoch) {
  if (node->epoch != epoch || !node->alive || node->returned || !node->steps) return;
  Trace(absl::StrCat(node->id, " knows that it is out of reach"));
  node->steps->OnReach(false);
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
  first_failure_[decision_.generation] = "?";
  if (!node->running) {
    node->steps->OnSignal(15, "received signal 15");
    Post(node);
    AfterChange(node);
    return;
  }
  node->ending = true;
  After(Random(kGrace), [this, node, number = node->running_number] {
    if (node->running_number != number) return;
    node->steps->OnSignal(15, "received signal 15");
    EndRanks(node, false, {});
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

void Simulation::FailRank(Node* node, bool consequence) {
  if (!node->alive || node->returned || !node->running || node->ending) return;
  Trace(absl::StrCat("a rank of ", node->id, " fails", consequence ? " because of another" : ""));
  node->ending = true;
  NodeFailure failure;
  failure.status = absl::UnknownError(absl::StrCat("rank on ", node->id, " failed"));
  failure.consequence = consequence;
  // Others may notice the end of a rank before its launcher does.
  const int64_t seen_ms = now_ms_ + (consequence ? 0 : Random(60));
  failure.time_ns = seen_ms * 1000000;
  failed_[node->generation].insert(node->index);
  if (!consequence) {
    // Of two at one time either may be named.
    std::string& hosts = first_failure_[node->generation];
    const auto [first, is_first] = failures_.emplace(node->generation, seen_ms);
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
    if (consequence || other->generation != node->generation || Random(3) == 0) continue;
    After(5 + Random(50), [this, n = other.get(), generation = node->generation] {
      if (n->generation == generation) FailRank(n, true);
    });
  }
}

void Simulation::EndRanks(Node* node, bool succeeded, NodeFailure failure) {
  node->running = node->ending = false;
  ++node->running_number;
  Trace(absl::StrCat("ranks of ", node->id, " have ended", succeeded ? " with success" : ""));
  if (succeeded) succeeded_[node->generation][node->id] = true;
  node->steps->OnEnd(succeeded, std::move(failure));
  if (node->steps->wants_port()) node->steps->OnPort(++node->port);
  Post(node);
  AfterChange(node);
}

void Simulation::StartRanks(Node* node, const Generation& generation) {
  Trace(absl::StrCat(node->id, " starts generation ", generation.number));
  AuditStart(*node, generation);
  node->running = true;
  node->ending = node->evicted_in_run = false;
  node->generation = generation.number;
  const int64_t number = ++node->running_number;
  Post(node);
  After(kRunTime + Random(3 * kSecond), [this, node, number] {
    if (node->running_number == number && !node->ending) EndRanks(node, true, {});
  });
}

void Simulation::AfterChange(Node* node) {
  if (const std::optional<Generation> generation = node->steps->TakeStart()) StartRanks(node, *generation);
  if (node->running && !node->ending && node->steps->MustEnd()) {
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

// --- The auditor ---

void Simulation::Violation(const std::string& text) {
  Trace(absl::StrCat("VIOLATION: ", text));
  if (report_.violation.empty()) report_.violation = absl::StrCat(text, ", at ", now_ms_, " ms");
}

// Whether the leader has heard that all ranks of the generation succeeded.
bool Simulation::HasToldSuccess(int64_t generation) {
  const auto members = formed_.find(generation);
  return members != formed_.end() && told_success_[generation].size() == members->second.size();
}

void Simulation::AuditDecision(const JobState& job, bool told_success) {
  Trace(absl::StrCat("decision: phase ", static_cast<int>(job.phase), ", generation ", job.generation, ", ",
                     job.members.size(), " members, ", job.reason, job.result.ToString()));
  // As after a signal: a node that leaves may take its failure with it.
  if (job.drained.size() > drained_) first_failure_[job.generation] = "?";
  drained_ = job.drained.size();
  const bool forms_anew = job.phase == JobPhase::kForming && phase_ != JobPhase::kForming;
  if (job.phase == JobPhase::kEnding && phase_ != JobPhase::kEnding) AuditReason(job);
  phase_ = job.phase;
  restarts_ += forms_anew && absl::StrContains(job.reason, "; restart ");
  if (restarts_ > limits_.max_restarts) Violation(absl::StrCat(restarts_, " restarts"));
  if (job.phase == JobPhase::kDone && job.result.ok()) {
    for (const Member& member : job.members) {
      if (!succeeded_[job.generation][member.agent]) Violation(absl::StrCat("success without ", member.agent));
    }
  }
  if (!config_.leader_can_change && told_success && (job.phase != JobPhase::kDone || !job.result.ok())) {
    Violation("all ranks have succeeded, and the job goes on or fails");
  }
  if (job.phase == JobPhase::kDone && absl::IsUnknown(job.result)) {
    const std::string& first = first_failure_[job.generation];
    bool names_one = absl::StrContains(first, "?");
    for (const absl::string_view host : absl::StrSplit(first, ' ', absl::SkipEmpty())) {
      names_one |= absl::StrContains(job.result.message(), absl::StrCat(host, ":"));
    }
    if (!names_one) {
      Violation(absl::StrCat("the first failure was on", first, ", but the job says: ", job.result.message()));
    }
  }
  if (job.phase != JobPhase::kRunning) return;
  const auto [known, is_new] = formed_.emplace(job.generation, job.members);
  const auto same = [](const Member& a, const Member& b) { return a.agent == b.agent && a.port == b.port; };
  if (!std::equal(job.members.begin(), job.members.end(), known->second.begin(), known->second.end(), same)) {
    Violation(absl::StrCat("generation ", job.generation, " has two lists of members"));
  }
  AuditLimits(job, is_new);
  if (!is_new) return;
  AuditOrder(job);
  const auto [used, unused] = ports_.emplace(job.members[0].port, job.generation);
  if (used->second != job.generation) Violation(absl::StrCat("port ", job.members[0].port, " is used again"));
}

void Simulation::AuditReason(const JobState& job) {
  const bool serves_in_reach = config_.leader_can_change || !Leader()->vanished;
  for (const auto& node : nodes_) {
    const std::string host = absl::StrCat("host host", node->index);
    const bool has_succeeded = !config_.leader_can_change && told_success_[job.generation].count(node->id) != 0;
    const bool failed = failed_[job.generation].count(node->index) != 0;
    if ((job.reason == absl::StrCat("a rank on ", host, " failed") && !failed) ||
        (job.reason == absl::StrCat(host, " was lost") && ((!node->vanished && serves_in_reach) || has_succeeded)) ||
        (job.reason == absl::StrCat(host, " leaves") && !node->signalled && !Contains(job.drained, node->id))) {
      Violation(absl::StrCat("generation ", job.generation, " ends without a reason: ", job.reason));
    }
  }
}

// What somebody asked for is decided as soon as the leader sees it.
void Simulation::AuditRequests(const JobState& job) {
  for (const auto& [id, post] : posts_) {
    for (const std::string& drained : post.drains) {
      if (posts_.count(drained) != 0 && !Contains(job.drained, drained))
        Violation(absl::StrCat(drained, " is drained and nobody says so"));
    }
    if (post.resize.number > job.limits.number) Violation("nobody decides a resize");
  }
}

// Limits are the ones of the decision that forms a generation. Ranks that run end only if there are too many nodes.
void Simulation::AuditLimits(const JobState& job, bool is_new) {
  const int min_nodes = job.limits.number > 0 ? job.limits.min_nodes : limits_.min_nodes;
  const int max_nodes = job.limits.number > 0 ? job.limits.max_nodes : limits_.max_nodes;
  const int nodes = static_cast<int>(job.members.size());
  if (is_new && nodes < min_nodes) Violation(absl::StrCat(nodes, " members"));
  const bool some_have_succeeded = !succeeded_[job.generation].empty();
  if (nodes > max_nodes && (is_new || !some_have_succeeded)) Violation(absl::StrCat(nodes, " members"));
  for (const Member& member : job.members) {
    if (is_new && Contains(job.drained, member.agent))
      Violation(absl::StrCat(member.agent, " is drained and takes part"));
  }
}

// Nodes of the generation before keep their order, and others follow.
void Simulation::AuditOrder(const JobState& job) {
  const auto before = formed_.find(job.generation - 1);
  if (before == formed_.end()) return;
  int last = -1;
  for (const Member& member : job.members) {
    const auto found = std::find_if(before->second.begin(), before->second.end(),
                                    [&](const Member& other) { return other.agent == member.agent; });
    if (found == before->second.end()) {
      last = static_cast<int>(before->second.size());
      continue;
    }
    const int index = static_cast<int>(found - before->second.begin());
    if (index < last) Violation(absl::StrCat(member.agent, " comes after a node that was behind it"));
    last = index;
  }
}

void Simulation::AuditStart(const Node& node, const Generation& generation) {
  if (node.signalled && !node.running && node.steps->state().signal != 0) {
    Violation(absl::StrCat(node.id, " starts ranks although it leaves"));
  }
  if (decision_.phase != JobPhase::kRunning && node.decision_seen == decisions_) {
    Violation(absl::StrCat(node.id, " starts ranks that nobody wants"));
  }
  std::map<std::string, Generation>& started = started_[generation.number];
  if (!started.emplace(node.id, generation).second) {
    Violation(absl::StrCat(node.id, " starts generation ", generation.number, " twice"));
  }
  if (started_.rbegin()->first > generation.number) {
    Violation(absl::StrCat(node.id, " starts generation ", generation.number, " after a later one"));
  }
  const std::vector<Member>& members = formed_[generation.number];
  int rank = 0, index = -1;
  for (int i = 0; i < static_cast<int>(members.size()); ++i) {
    if (members[i].agent == node.id) {
      index = i;
      if (generation.first_rank != rank) Violation(absl::StrCat(node.id, " has a wrong first rank"));
    }
    rank += members[i].ranks;
  }
  if (index != generation.node_rank || generation.world_size != rank ||
      generation.nnodes != static_cast<int>(members.size())) {
    Violation(absl::StrCat(node.id, " starts at a wrong place"));
  }
  if (!members.empty() && (generation.master_port != members[0].port || generation.master_addr != members[0].address)) {
    Violation(absl::StrCat(node.id, " has another address of rank 0"));
  }
  if (index == 0 && generation.master_port != node.port) Violation(absl::StrCat(node.id, " does not hold the port"));
  for (const auto& other : nodes_) {
    const bool old = other->running && other->generation < generation.number;
    const bool must_have_ended =
        other->cut && other->knows_cut && now_ms_ - other->cut_ms > kAgentIsAway + kSettle + kGrace;
    if (old && ((Reachable(*other) && !other->evicted_in_run) || must_have_ended)) {
      Violation(absl::StrCat(node.id, " starts generation ", generation.number, " while ", other->id, " runs ",
                             other->generation));
    }
  }
  if (started.size() == members.size()) {
    report_.started_ms[generation.number] = now_ms_;
    report_.started_messages[generation.number] = report_.messages;
  }
}

// The number of nodes that could start.
int Simulation::Candidates() const {
  return static_cast<int>(std::count_if(posts_.begin(), posts_.end(),
                                        [this](const auto& post) { return !Contains(decision_.drained, post.first); }));
}

// What must happen soon where nothing is in its way.
void Simulation::AuditWaiting() {
  const Node* leader = Leader();
  const bool leads = leader && Reachable(*leader) && !leader->returned && leader->steps;
  const auto is_ready = [](const auto& post) { return post.second.phase == AgentPhase::kReady; };
  const bool all_ready = std::all_of(posts_.begin(), posts_.end(), is_ready);
  const bool resized = decision_.limits.number > 0;
  const bool may_form = leads && decision_.phase == JobPhase::kForming && all_ready &&
                        Candidates() >= (resized ? decision_.limits.min_nodes : limits_.min_nodes);
  if (!may_form) form_since_ms_ = -1;
  if (may_form && form_since_ms_ < 0) form_since_ms_ = now_ms_;
  if (may_form && now_ms_ - form_since_ms_ > absl::ToInt64Milliseconds(limits_.last_call) + 3 * kSecond) {
    Violation("no generation forms although enough nodes are ready");
  }
  const bool failing =
      leads && decision_.phase == JobPhase::kRunning &&
      std::any_of(posts_.begin(), posts_.end(), [&](const auto& post) {
        return post.second.phase == AgentPhase::kFailing && post.second.generation == decision_.generation;
      });
  if (!failing) failing_since_ms_ = -1;
  if (failing && failing_since_ms_ < 0) failing_since_ms_ = now_ms_;
  if (failing && now_ms_ - failing_since_ms_ > kSlowest) Violation("a rank has failed, and its generation goes on");
  for (const auto& node : nodes_) {
    const bool leaves =
        leads && Reachable(*node) && !node->returned && node->steps && !node->steps->state().leaving.empty();
    if (!leaves) node->leaves_since_ms = -1;
    if (leaves && node->leaves_since_ms < 0) node->leaves_since_ms = now_ms_;
    if (leaves && now_ms_ - node->leaves_since_ms > 8 * kSecond)
      Violation(absl::StrCat(node->id, " leaves and does not return"));
  }
}

void Simulation::AuditEnd() {
  const absl::Status* result = nullptr;
  for (const auto& node : nodes_) {
    if (node->alive && !node->returned) {
      Violation(absl::StrCat(node->id, " never returns: phase ", static_cast<int>(node->steps->state().phase),
                             ", generation ", node->steps->state().generation, "; the job is in phase ",
                             static_cast<int>(decision_.phase), " of generation ", decision_.generation));
    }
    const bool saw_the_end = node->returned && decision_.phase == JobPhase::kDone &&
                             node->decision_seen == decisions_ && node->steps->state().phase != AgentPhase::kLeaving;
    if (!saw_the_end || node->result.message() == kLost) continue;
    if (result && node->result != *result) {
      Violation(absl::StrCat("agents return ", result->ToString(), " and ", node->result.ToString()));
    }
    result = &node->result;
  }
  report_.result = result ? std::string(absl::StatusCodeToString(result->code())) : "NONE";
}

}  // namespace lockstep::launch::internal
