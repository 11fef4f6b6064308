#include "lockstep/elastic/simulator/internal/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/simulator/internal/process.h"

namespace lockstep::elastic::internal {
namespace {

using launch::Membership;
using launch::NodeSlots;
using launch::RankPlan;
using Kind = NodeSlots::Action::Kind;

std::string DeathText(int rank, int id, const std::string& how) {
  return absl::StrCat("rank ", rank, " (local rank ", rank, ", pid ", id, ") ", how);
}

std::optional<int> KindOf(const std::string& how) {
  if (absl::StrContains(how, "exited")) return kExit;
  if (absl::StrContains(how, "SIGSEGV")) return kCrash;
  if (how == kDidNotLeave) return kStuck;
  return std::nullopt;
}

}  // namespace

Simulation::Simulation(const Config& config)
    : Engine(config, absl::Microseconds(1)), config_(config), states_({kInitialState}) {
  for (int64_t step = 1; step <= config.steps; ++step) states_.push_back(Applied(states_.back(), step));
}

Simulation::~Simulation() = default;

void Simulation::AfterIn(Process* process, int64_t us, Then run) {
  After(us, [this, process, run = std::move(run)]() mutable {
    if (!process->alive || over_) return;
    if (process->stopped_until_us > now()) {
      AfterIn(process, process->stopped_until_us - now() + Random(100), std::move(run));
    } else {
      run();
    }
  });
}

Simulation::Generation& Simulation::In(const Process& process) { return *generations_.at(process.generation); }

launch::simulator::Report Simulation::Run() {
  has_head_start_ = Random(2) == 0;
  Lead();
  checks_ = Random(2) == 0;
  broadcasts_ = Random(2) == 0;
  if (config_.faults > 0 && Random(8) == 0) broken_step_ = Random(config_.steps);
  shards_ = Random(2) == 0;
  pieces_ = shards_ && Random(2) == 0;
  agrees_ = Random(2) == 0;
  slots_.resize(config_.ranks + config_.spares);
  for (size_t slot = 0; slot < slots_.size(); ++slot) Start(static_cast<int>(slot));
  for (int i = 0; i < config_.faults; ++i) After(Random(kFaultTime), [this] { Fault(); });
  const auto kill = [this](int slot) {
    if (slots_[slot]->alive) Die(slots_[slot], kKilled);
  };
  RunEvents(kHorizon, kMostEvents, kill, [this] {
    if (!over_) Decide();
    AuditEvent();
    died_ = false;
    return !over_;
  });
  if (!over_ && report_.violation.empty()) Violation("nothing happens any more or too much, and the job has not ended");
  return report_;
}

// The launcher.

void Simulation::Lead() {
  launch::JobState job;
  launch::Member member;
  agent_.phase = launch::AgentState::Phase::kRunning;
  member.entry = agent_.entry = job.start = 1;
  member.ranks = config_.ranks;
  member.spares = config_.spares;
  job.members.push_back(member);
  Membership::Limits limits;
  limits.wait_for_ranks = absl::Seconds(60);
  if (has_head_start_) limits.restarts.head_start = absl::Microseconds(kHeadStart);
  membership_.emplace(limits);
  membership_->Start(job, {}, Now());
  node_.emplace(config_.ranks + config_.spares);
}

void Simulation::Start(int slot) {
  const Process* const before = slots_[slot];
  processes_.push_back(std::make_unique<Process>());
  Process* const process = slots_[slot] = processes_.back().get();
  process->id = static_cast<int>(processes_.size());
  process->initial = process->id;
  process->slot = slot;
  if (shards_) process->steps.Shard();
  if (before) process->owes = before->owes;
  if (before) process->failed_starts = before->failed_starts;
  process->may_fail = Random(4) == 0;
  const int64_t joins_us = 20 * kMs + Random(300 * kMs);
  AfterIn(process, Random(joins_us), [this] {
    stays_ = true;
    node_->OnStays();
  });
  AfterIn(process, joins_us, [this, process] { Join(process, ""); });
}

void Simulation::Decide() {
  agent_.slots = node_->slots();
  agent_.progressed = node_->progressed();
  agent_.step = node_->step();
  agent_.link_port = 1 + static_cast<int>(plan().generation);
  const RankPlan before = plan();
  membership_->Update({{"", agent_}}, {}, Now());
  AuditDecision(before);
  if (plan().stays) node_->OnRanks({plan(), 0});
  for (const NodeSlots::Action& action : node_->Take()) Apply(action);
  if (plan().generation != before.generation) Begin();
  if (membership_->finished()) return End("success");
  if (plan().ending) return EndForFailure(*plan().ending);
  if (!plan().verdict.ok()) return End(std::string(plan().verdict.message()));
  if (membership_->next_look() < absl::InfiniteFuture()) {
    const int64_t us = absl::ToInt64Microseconds(membership_->next_look() - Now());
    if (us > 0) After(us, [] {});
  }
}

void Simulation::AuditDecision(const RankPlan& before) {
  const bool is_new = plan().order != before.order || plan().order_reason != before.order_reason;
  const bool is_ordered = is_new && !plan().SlotsIn(RankPlan::State::kMember).empty();
  if (is_ordered && plan().order == launch::RegroupOrder::kNow) AuditBreak();
  if (is_ordered && plan().order == launch::RegroupOrder::kAfterStep) AuditPlan();
}

// A generation forms.
void Simulation::Begin() {
  const std::vector<int>& slots = plan().members;
  ++report_.counts["generations"];
  report_.counts["generations of 5 ranks"] += slots.size() == 5;
  const int64_t number = plan().generation;
  auto generation = std::make_unique<Generation>();
  generation->number = number;
  generation->reason = plan().reason;
  generation->failure = plan().failure;
  generation->left_with = std::exchange(left_with_, std::nullopt);
  for (const int slot : slots) {
    generation->members.push_back(slots_[slot]);
    generation->failed |= !slots_[slot]->alive;  // which the launcher does not know yet
  }
  Trace(absl::StrCat("generation ", number, " has ", slots.size(), " ranks: ", plan().reason));
  AuditForm(*generation);
  regroups_since_us_.reset();
  left_because_.clear();
  ends_as_planned_ = false;
  for (Process* const process : slots_) process->owes = false;
  for (Process* const process : generation->members) {
    process->is_ready = false;
    process->is_member = true;
    process->local_rank = plan().slots[process->slot].local_rank;
  }
  generations_[number] = std::move(generation);
}

void Simulation::Apply(const NodeSlots::Action& action) {
  Process* const process = slots_[action.slot];
  switch (action.kind) {
    case Kind::kGeneration:
      AfterIn(process, Random(2 * kMs),
              [this, process, number = plan().generation, rank = node_->place(action.slot).rank] {
                if (!process->waits) Violation(absl::StrCat("slot ", process->slot, " does not wait for a generation"));
                Form(process, number, rank);
              });
      break;
    case Kind::kOrder:
      SendOrder(process);
      break;
    case Kind::kStart:
      AuditStart(*process);
      Start(action.slot);
      break;
    case Kind::kKill:
      if (!process->alive) break;
      AuditKill(*process);
      Die(process, kDidNotLeave);
      break;
    case Kind::kGiveUp:
      AuditGiveUp(process);
      break;
  }
}

void Simulation::SendOrder(Process* process) {
  const bool now = plan().order == launch::RegroupOrder::kNow;
  AfterIn(process, Random(2 * kMs), [this, process, number = plan().generation, now] {
    if (!now) process->regroups_in = std::max(process->regroups_in, number);
    if (now && process->generation == number) Learn(process, "the group failed");
    // The order may come before the generation.
    if (now && process->waits && process->left < number) {
      process->broken = true;
      process->why = "the group failed";
    }
  });
}

// The others hear of it from the group's watch, and from the launcher.
void Simulation::Die(Process* process, const std::string& how) {
  Trace(absl::StrCat("slot ", process->slot, " dies: ", how));
  died_ = true;
  process->alive = false;
  deaths_[process->id] = KindOf(how);
  process->died_us = now();
  process->killed = absl::StrContains(how, "killed") && how != kDidNotLeave;
  if (process->generation != 0) NotifyOthers(*process, "the group failed");
  for (const auto& [number, generation] : generations_) {
    if (std::count(generation->members.begin(), generation->members.end(), process) > 0) generation->failed = true;
  }
  launch::Failure cause;
  cause.status = absl::AbortedError(DeathText(process->facts.rank, process->id, how));
  cause.killed = process->killed;
  cause.did_not_leave = how == kDidNotLeave;
  cause.time_ns = now() * 1000;
  if (KindOf(how)) cause.own = launch::StepFailure{-1, process->facts.rank, how};
  After(Random(kReport), [this, process, cause] {
    if (!over_) OnFailure(process, cause);
  });
}

// The launcher does.
void Simulation::OnFailure(Process* process, const launch::Failure& cause) {
  OnDone();
  process->failed_us = now();
  if (!process->was_ready) ++process->failed_starts;
  const bool has_done_now = process->has_done && process->finished_in == plan().generation;
  process->failed_in = plan().generation;
  process->failed_as_member = !IsComplete() && (process->is_member || has_done_now);
  process->owes |= process->failed_as_member;
  if (process->failed_as_member && !regroups_since_us_) regroups_since_us_ = now();
  process->is_ready = process->is_member = false;
  const bool goes_on = node_->OnEnd(process->slot, cause);
  if (goes_on == MayEndJob(*process)) {
    Violation(absl::StrCat("the job ", goes_on ? "goes on, although none of its processes stays or one has exited"
                                               : "ends, although a process lives"));
  }
  if (!goes_on) End(kNotStarted);
}

// The limits of the job allow no other process.
void Simulation::EndForFailure(const std::string& ending) {
  const bool someone_lives = std::any_of(slots_.begin(), slots_.end(), [](const Process* each) { return each->alive; });
  if (someone_lives && !absl::StrContains(ending, kBarren)) Violation("the job ends, although a process lives");
  End(ending);
}

// Returns whether a failure of the process may end the job: before the first generation, if no process has said that it
// stays, or if this one has exited.
bool Simulation::MayEndJob(const Process& process) const {
  return generations_.empty() && (!stays_ || !process.killed);
}

void Simulation::End(const std::string& result) {
  Trace("the job ends: " + result);
  AuditEnd(result);
  over_ = true;
  report_.result = IsVerdict(result)                    ? "one cause came too often"
                   : absl::StrContains(result, kBarren) ? "generations without a step"
                                                        : result;
}

// Returns whether a process has ended the job with this result.
bool Simulation::IsVerdict(const std::string& result) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const auto& process) { return !result.empty() && process->verdict == result; });
}

// Before a process has said that it stays, a failure ends all ranks, and then the launcher starts again. That is not
// simulated.
void Simulation::Fault() {
  if (over_) return;
  const bool waits = !plan().formed && Random(4) != 0;  // few, as many of them end the job
  if (!stays_ || waits) return After(Random(kFaultTime), [this] { Fault(); });
  std::vector<Process*> alive;
  for (Process* const process : slots_) {
    if (process->alive && !process->done) alive.push_back(process);
  }
  if (alive.empty()) return;
  std::shuffle(alive.begin(), alive.end(), random_);
  const int64_t kind = Random(10);
  if (kind < 3) {  // a process is stopped, for longer than it may take to leave in half of the cases
    alive[0]->stopped_until_us = std::max(alive[0]->stopped_until_us, now() + Random(2 * kLeaveTimeout));
    Trace(absl::StrCat("slot ", alive[0]->slot, " is stopped"));
    return;
  }
  if (kind == 9) {  // only new processes are left
    alive.erase(std::remove_if(alive.begin(), alive.end(), [](const Process* each) { return !each->has_trained; }),
                alive.end());
  }
  const size_t deaths = kind < 6 ? 1 : kind == 6 ? 2 : kind < 9 ? alive.size() - 1 : alive.size();
  for (size_t i = 0; i < std::min(deaths, alive.size()); ++i) Die(alive[i], kHows[Random(4)]);
}

}  // namespace lockstep::elastic::internal
