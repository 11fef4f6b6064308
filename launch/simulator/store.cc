// The store of the rendezvous, and the leader's decisions that it holds.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/launch/job/job_json.h"
#include "lockstep/launch/simulator/node.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {

void Simulation::Post(Node* node) {
  const uint64_t number = ++node->posts;
  const AgentState state = node->steps->TakePost();
  ++messages_;
  After(Delay(), [this, node, number, state] {
    const bool host_is_cut = !config_.leader_can_change && Leader()->cut && node->index != leader_;
    if (!(ReachesStore(*node) || !node->alive) || node->returned || host_is_cut) return;
    uint64_t& known = post_numbers_[node->id];
    if (number <= known) return;
    if (!node->alive && node->evicted) return;
    known = number;
    posts_[node->id] = state;
    node->evicted = false;
    const JobState& decided = coordinator_ ? coordinator_->job() : decision_;  // perhaps nobody has heard it yet
    const bool counts = decided.phase == JobPhase::kRunning && decided.start == state.start;
    if (counts && state.phase == AgentPhase::kSucceeded) told_success_[state.start].insert(node->id);
    if (leader_ < 0) ElectLeader();
    Look();
  });
}

// Returns whether the leader has heard that all ranks of the generation succeeded.
bool Simulation::HasToldSuccess(int64_t generation) {
  const auto members = formed_.find(generation);
  return members != formed_.end() && told_success_[generation].size() == members->second.size();
}

void Simulation::Look() {
  Node* leader = Leader();
  if (!leader || !ReachesStore(*leader) || leader->returned) return;
  // As another agent reads it.
  if (!coordinator_) coordinator_.emplace(limits_, *DecodeJob(EncodeJob(decision_)), Now());
  Agents posts = posts_;
  if (stranger_) posts[kStranger] = stranger_->state();
  const bool changed = coordinator_->Update(posts, Now());
  LookAt(coordinator_->next_look());
  AuditRequests(coordinator_->job());
  AuditCancelled(coordinator_->job());
  AuditNeeded(coordinator_->job());
  if (!changed) return;
  // Decisions of one leader arrive in their order.
  decided_ms_ = std::max(decided_ms_, now() + (config_.leader_can_change ? Delay() : 0));
  const JobState& job = coordinator_->job();
  for (const Member& member : job.members) entered_ms_.emplace(member.entry, now());
  After(decided_ms_ - now(), [this, job, told = HasToldSuccess(job.start), epoch = leader_epoch_] {
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
  if (look_ms_ > now() && look_ms_ <= at) return;
  look_ms_ = at;
  After(std::max<int64_t>(at - now(), 0), [this] { Look(); });
}

void Simulation::Broadcast() {
  if (stranger_) After(kStrangerDelay, [this] { AnswerStranger(); });
  for (const auto& node : nodes_) {
    ++messages_;
    After(node->index == leader_ && !config_.leader_can_change ? 0 : Delay(),
          [this, n = node.get()] { DeliverDecision(n); });
  }
}

void Simulation::DeliverDecision(Node* node) {
  const bool host_is_cut = !config_.leader_can_change && Leader()->cut && node->index != leader_;
  if (!ReachesStore(*node) || host_is_cut || node->returned || !node->steps || node->decision_seen == decisions_)
    return;
  node->decision_seen = decisions_;
  node->steps->OnJob(decision_);
  if (node->steps->wants_port() && !node->running) node->steps->OnPort(++node->port);
  if (node->steps->must_post()) Post(node);
  AfterChange(node);
  if (node->running && !node->ending && node->slots) Apply(node);
  const bool is_over = decision_.phase != JobPhase::kRunning || decision_.start != node->start;
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
  if (const auto left_out = left_out_.find(node->id); left_out != left_out_.end()) {
    left_out->second = {left_out->second.times, now(), /*evicted=*/true};
  }
  node->evicted = node->evicted_in_run = true;
  node->evicted_ms = now();
  node->was_lost |= !node->returned;
  node->gone_ms = now();
  posts_.erase(node->id);
  if (node->index == leader_) ElectLeader();
  Look();
}

// It asks for all that could disturb the others.
void Simulation::JoinStranger() {
  Trace("a launcher of another job comes");
  AgentState state;
  state.host = kStranger;
  state.node_rank = 99;
  state.program.words = {"another program"};
  stranger_.emplace(kStranger, state);
  stranger_->OnPort(1);
  for (const auto& node : nodes_) stranger_->OnDrain(node->id);
  stranger_->OnJob(decision_);
  stranger_->OnResize(99, 99);
  Look();
}

void Simulation::AnswerStranger() {
  if (!stranger_) return;
  stranger_->OnJob(decision_);
  if (stranger_->TakeStart()) Violation("a launcher of another job starts its ranks");
  const std::optional<absl::Status> result = stranger_->Result();
  if (!result) return;
  // One that comes after the end may see the end only.
  if (!absl::IsInvalidArgument(*result) && decision_.phase != JobPhase::kDone) {
    Violation(absl::StrCat("a launcher of another job returns ", result->ToString()));
  }
  report_.counts["launchers refused"] = absl::IsInvalidArgument(*result) ? 1 : 0;
  stranger_.reset();
  Look();
}

}  // namespace lockstep::launch
