#include "lockstep/launch/job/agent_steps.h"

#include <signal.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

using Phase = AgentState::Phase;

}  // namespace

AgentSteps::AgentSteps(std::string id, AgentState state) : id_(std::move(id)), state_(std::move(state)) {}

void AgentSteps::OnJob(const JobState& job) {
  const auto said = [this] { return std::make_tuple(state_.phase, state_.start, state_.entry); };
  const auto before = said();
  Follow(job);
  must_post_ |= said() != before;
}

void AgentSteps::Follow(const JobState& job) {
  job_ = job;
  RecordDrain();
  if (const Stranger* me = FindStranger(job, id_)) lost_ = absl::InvalidArgumentError(me->why);
  if (Runs(state_) || state_.phase == Phase::kLeaving) return;
  // This generation will not start here, or not again. The leader waits until every member says so.
  const bool over = job.phase == JobState::Phase::kEnding || job.phase == JobState::Phase::kForming;
  if (over && state_.start < job.start) {
    // Other nodes may have started generations with this node's port.
    wants_port_ = true;
    state_.start = job.start;
    state_.failure = {};
  }
  const int node = NodeRankOf(job, id_);
  if (over && node >= 0) state_.entry = std::max(state_.entry, job.members[node].entry);
  if (over) state_.phase = Phase::kReady;
}

const AgentState& AgentSteps::TakePost() {
  must_post_ = false;
  return state_;
}

void AgentSteps::OnLost(absl::Status status) { lost_ = std::move(status); }

void AgentSteps::OnFailing() {
  if (Runs(state_)) state_.phase = Phase::kFailing;
}

void AgentSteps::OnEnd(bool succeeded, Failure failure) {
  state_.phase = succeeded ? Phase::kSucceeded : Phase::kReady;
  state_.failure = std::move(failure);
  if (!state_.leaving.empty()) state_.phase = Phase::kLeaving;
  OnJob(JobState(job_));  // later generations may have ended meanwhile
}

void AgentSteps::OnSignal(int signal, std::string reason) {
  state_.signal = signal;
  state_.leaving = std::move(reason);
  if (!Runs(state_)) state_.phase = Phase::kLeaving;
}

void AgentSteps::OnDrain(const std::string& agent) {
  if (!absl::c_linear_search(state_.drains, agent)) state_.drains.push_back(agent);
}

void AgentSteps::OnResize(int min_nodes, int max_nodes) {
  state_.resize.number = job_.limits.number + 1;
  state_.resize.min_nodes = min_nodes;
  state_.resize.max_nodes = max_nodes;
}

void AgentSteps::OnSlots(const NodeSlots& slots, int port) {
  state_.slots = slots.slots();
  state_.link_port = port;
  state_.progressed = slots.progressed();
  state_.step = slots.step();
}

NodeRanks AgentSteps::Ranks() const {
  const RankPlan& plan = job_.ranks;
  const int node = plan.NodeOf(state_.entry);
  if (plan.start != job_.start || !plan.stays || node < 0) return {};
  return {plan, node};
}

// An agent that is drained leaves as after SIGTERM, once its ranks have left where others stay.
void AgentSteps::RecordDrain() {
  if (state_.leaving.empty() && IsDrained(job_, id_)) OnSignal(SIGTERM, "was drained");
}

std::optional<NodeStart> AgentSteps::TakeStart() {
  const int node_rank = NodeRankOf(job_, id_);
  const bool starts =
      job_.phase == JobState::Phase::kRunning && node_rank >= 0 && job_.members[node_rank].entry > state_.entry;
  if (!starts || state_.phase != Phase::kReady || !lost_.ok() || !in_reach_) return std::nullopt;
  NodeStart start;
  start.number = job_.start;
  start.restarts = job_.restarts;
  start.nnodes = static_cast<int>(job_.members.size());
  start.node_rank = node_rank;
  start.master_addr = job_.members[0].address;
  start.master_port = job_.members[0].port;
  start.world_size = 0;
  for (int i = 0; i < start.nnodes; ++i) {
    if (i == start.node_rank) start.first_rank = start.world_size;
    start.world_size += job_.members[i].ranks;
  }
  state_.start = job_.start;
  state_.entry = job_.members[node_rank].entry;
  state_.phase = Phase::kRunning;
  state_.failure = {};
  state_.slots.clear();
  wants_port_ = true;
  return start;
}

void AgentSteps::OnPort(int port) {
  state_.port = port;
  wants_port_ = false;
}

bool AgentSteps::MustEnd() const {
  if (!lost_.ok() || !in_reach_) return true;
  const int node_rank = NodeRankOf(job_, id_);
  return job_.start != state_.start || job_.phase != JobState::Phase::kRunning || node_rank < 0 ||
         job_.members[node_rank].entry != state_.entry;
}

std::optional<absl::Status> AgentSteps::Result() const {
  if (Runs(state_)) return std::nullopt;
  if (FindStranger(job_, id_)) return lost_;
  if (job_.phase == JobState::Phase::kDone) return job_.result;
  if (!lost_.ok()) return state_.failure.status.ok() ? lost_ : state_.failure.status;
  if (state_.phase != Phase::kLeaving || !HasLeft(job_, id_)) return std::nullopt;
  return CancelledBySignal(state_.signal, absl::StrCat("the launcher ", state_.leaving));
}

}  // namespace lockstep::launch
