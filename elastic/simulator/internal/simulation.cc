#include "lockstep/elastic/simulator/internal/simulation.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/simulator/internal/process.h"

namespace lockstep::elastic::internal {
namespace {

using launch::internal::Membership;
using Kind = Membership::Decision::Kind;

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

Simulation::Simulation(const Config& config) : config_(config), random_(config.seed), states_({kInitialState}) {
  for (int64_t step = 1; step <= config.steps; ++step) states_.push_back(Applied(states_.back(), step));
}

Simulation::~Simulation() = default;

int64_t Simulation::Random(int64_t bound) {
  return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(bound, 1)));
}

void Simulation::Trace(const std::string& text) const {
  if (config_.trace) std::cerr << absl::StrCat(report_.events, " ", now_us_, " us: ", text, "\n");
}

void Simulation::After(int64_t us, Then run) { events_.push({now_us_ + us, order_++, std::move(run)}); }

void Simulation::AfterIn(Process* process, int64_t us, Then run) {
  After(us, [this, process, run = std::move(run)]() mutable {
    if (!process->alive || over_) return;
    if (process->stopped_until_us > now_us_) {
      AfterIn(process, process->stopped_until_us - now_us_ + Random(100), std::move(run));
    } else {
      run();
    }
  });
}

Simulation::Generation& Simulation::In(const Process& process) { return *generations_.at(process.generation); }

Simulation::Report Simulation::Run() {
  Membership::Limits limits;
  limits.ranks = config_.ranks;
  limits.spares = config_.spares;
  limits.wait_for_ranks = absl::Seconds(60);
  has_head_start_ = Random(2) == 0;
  if (has_head_start_) limits.head_start = absl::Microseconds(kHeadStart);
  membership_.emplace(limits, Now());
  checks_ = Random(2) == 0;
  broadcasts_ = Random(2) == 0;
  if (config_.faults > 0 && Random(8) == 0) broken_step_ = Random(config_.steps);
  shards_ = Random(2) == 0;
  slots_.resize(config_.ranks + config_.spares);
  for (size_t slot = 0; slot < slots_.size(); ++slot) Start(static_cast<int>(slot));
  for (int i = 0; i < config_.faults; ++i) After(Random(kFaultTime), [this] { Fault(); });
  while (!events_.empty() && !over_ && report_.violation.empty()) {
    Event event = events_.top();
    events_.pop();
    now_us_ = event.at_us;
    died_ = false;
    for (const Death& death : config_.deaths) {
      Process* const process = slots_[death.slot];
      if (death.event == report_.events && process->alive) Die(process, kKilled);
    }
    ++report_.events;
    event.run();
    if (!over_) Decide();
    AuditEvent();
    if (now_us_ > kHorizon || report_.events > kMostEvents) Violation("the job does not end");
  }
  if (!over_ && report_.violation.empty()) Violation("nothing happens any more, and the job has not ended");
  return report_;
}

// The launcher.

void Simulation::Start(int slot) {
  const Process* const before = slots_[slot];
  processes_.push_back(std::make_unique<Process>());
  Process* const process = slots_[slot] = processes_.back().get();
  process->id = static_cast<int>(processes_.size());
  process->initial = process->id;
  process->slot = slot;
  if (before) process->owes = before->owes;
  if (before) process->failed_starts = before->failed_starts;
  process->may_fail = Random(4) == 0;
  const int64_t joins_us = 20 * kMs + Random(300 * kMs);
  AfterIn(process, Random(joins_us), [this] {
    stays_ = true;
    membership_->OnStays();
  });
  AfterIn(process, joins_us, [this, process] { Join(process, ""); });
}

void Simulation::Decide() {
  membership_->Update(Now());
  for (const Membership::Decision& decision : membership_->Take()) Obey(decision);
  if (membership_->finished()) return End("success");
  if (!membership_->verdict().ok()) return End(std::string(membership_->verdict().message()));
  if (membership_->next_look() < absl::InfiniteFuture()) {
    const int64_t us = absl::ToInt64Microseconds(membership_->next_look() - Now());
    if (us > 0) After(us, [] {});
  }
}

// A generation forms.
void Simulation::Begin(const Membership::Decision& decision) {
  ++report_.generations;
  report_.most_ranks = std::max<int64_t>(report_.most_ranks, static_cast<int64_t>(decision.slots.size()));
  const int64_t number = membership_->generation();
  auto generation = std::make_unique<Generation>();
  generation->number = number;
  generation->reason = decision.reason;
  for (const int slot : decision.slots) {
    generation->members.push_back(slots_[slot]);
    generation->failed |= !slots_[slot]->alive;  // which the launcher does not know yet
  }
  Trace(absl::StrCat("generation ", number, " has ", decision.slots.size(), " ranks: ", decision.reason));
  AuditForm(*generation);
  regroups_since_us_.reset();
  left_because_.clear();
  ends_as_planned_ = false;
  for (Process* const process : slots_) process->owes = false;
  for (size_t rank = 0; rank < decision.slots.size(); ++rank) {
    Process* const process = generation->members[rank];
    process->is_ready = false;
    process->is_member = true;
    process->local_rank = membership_->local_rank(process->slot);
    AfterIn(process, Random(2 * kMs), [this, process, number, rank] {
      if (!process->waits) Violation(absl::StrCat("slot ", process->slot, " does not wait for a generation"));
      process->rank = static_cast<int>(rank);
      Form(process, number);
    });
  }
  generations_[number] = std::move(generation);
}

void Simulation::Obey(const Membership::Decision& decision) {
  if (decision.kind == Kind::kForm) return Begin(decision);
  if (decision.kind == Kind::kNow) AuditBreak();
  if (decision.kind == Kind::kAfterStep) AuditPlan();
  const int64_t number = membership_->generation();
  for (const int slot : decision.slots) {
    Process* const process = slots_[slot];
    if (decision.kind == Kind::kStart) {
      AuditStart(*process);
      Start(slot);
    }
    if (decision.kind == Kind::kGiveUp) AuditGiveUp(process);
    if (decision.kind == Kind::kKill && process->alive) {
      AuditKill(*process);
      Die(process, kDidNotLeave);
    }
    AfterIn(process, Random(2 * kMs), [this, process, number, kind = decision.kind] {
      const bool is_in = process->generation == number;
      if (kind == Kind::kNow && is_in) Learn(process, "the group failed");
      // The order may come before the generation.
      if (kind == Kind::kNow && process->waits && process->left < number) {
        process->broken = true;
        process->why = "the group failed";
      }
      if (kind == Kind::kAfterStep) process->regroups_in = std::max(process->regroups_in, number);
    });
  }
}

// The others hear of it from the group's watch, and from the launcher.
void Simulation::Die(Process* process, const std::string& how) {
  Trace(absl::StrCat("slot ", process->slot, " dies: ", how));
  died_ = true;
  process->alive = false;
  deaths_[process->id] = KindOf(how);
  process->died_us = now_us_;
  process->killed = absl::StrContains(how, "killed") && how != kDidNotLeave;
  if (process->generation != 0) TellOthers(*process, "the group failed");
  for (const auto& [number, generation] : generations_) {
    if (std::count(generation->members.begin(), generation->members.end(), process) > 0) generation->failed = true;
  }
  Membership::Cause cause;
  cause.text = DeathText(process->rank, process->id, how);
  cause.killed = process->killed;
  cause.exited = !process->killed;
  cause.time_ns = now_us_ * 1000;
  After(Random(kReport), [this, process, cause] {
    if (!over_) HearFailure(process, cause);
  });
}

// The launcher does.
void Simulation::HearFailure(Process* process, const Membership::Cause& cause) {
  HearDone();
  const bool someone_lives = std::any_of(slots_.begin(), slots_.end(), [](const Process* each) { return each->alive; });
  process->failed_us = now_us_;
  if (!process->was_ready) ++process->failed_starts;
  const bool has_done_now = process->has_done && process->finished_in == membership_->generation();
  process->failed_in = membership_->generation();
  process->failed_as_member = !IsComplete() && (process->is_member || has_done_now);
  process->owes |= process->failed_as_member;
  if (process->failed_as_member && !regroups_since_us_) regroups_since_us_ = now_us_;
  process->is_ready = process->is_member = false;
  if (membership_->OnFailure(process->slot, cause, Now())) {
    if (MayEndJob(*process)) Violation("the job goes on, although none of its processes stays or one has exited");
    return;
  }
  const bool is_limit = absl::StrContains(membership_->ending(), kBarren);
  if (!MayEndJob(*process) && someone_lives && !is_limit) Violation("the job ends, although a process lives");
  End(membership_->formed() ? membership_->ending() : kNotStarted);
}

// Whether its failure may: before the first generation, if no process has said that it stays, or if this one has exited.
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

// Whether a process has ended the job with this result.
bool Simulation::IsVerdict(const std::string& result) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [&](const auto& process) { return !result.empty() && process->verdict == result; });
}

// Before a process has said that it stays, a failure ends all ranks, and then the launcher starts again. That is not
// simulated.
void Simulation::Fault() {
  if (over_) return;
  const bool waits = !membership_->formed() && Random(4) != 0;  // few, as many of them end the job
  if (!stays_ || waits) return After(Random(kFaultTime), [this] { Fault(); });
  std::vector<Process*> alive;
  for (Process* const process : slots_) {
    if (process->alive && !process->done) alive.push_back(process);
  }
  if (alive.empty()) return;
  std::shuffle(alive.begin(), alive.end(), random_);
  const int64_t kind = Random(10);
  if (kind < 3) {  // a process is stopped, for longer than it may take to leave in half of the cases
    alive[0]->stopped_until_us = std::max(alive[0]->stopped_until_us, now_us_ + Random(2 * kLeaveTimeout));
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
