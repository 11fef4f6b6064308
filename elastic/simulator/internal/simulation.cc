#include "lockstep/elastic/simulator/internal/simulation.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/simulator/internal/process.h"

namespace lockstep::elastic::internal {
namespace {

using launch::internal::Membership;
using Kind = Membership::Decision::Kind;

// Causes by which ranks fail themselves.
enum Cause : int { kSample, kLoss, kExit, kCrash };

constexpr char kKilled[] = "was killed by signal 9 (SIGKILL)";
constexpr const char* kHows[] = {kKilled, kKilled, "exited with code 3", "was killed by signal 11 (SIGSEGV)"};

std::string DeathText(int rank, int id, const std::string& how) {
  return absl::StrCat("rank ", rank, " (local rank ", rank, ", pid ", id, ") ", how);
}

int64_t FactOf(const Progress& progress) { return (progress.commits + 1) * 4 + static_cast<int64_t>(progress.part); }
Progress ProgressIn(int64_t fact) { return {fact / 4 - 1, static_cast<StepPart>(fact % 4)}; }

// Of the state that is kept: failures belong to it.
uint64_t HashOf(uint64_t state, int initial, const std::vector<Failure>& failures) {
  state = Applied(state, initial);
  for (const Failure& failure : failures)
    state = Applied(state, failure.step) + std::hash<std::string>()(failure.cause);
  return state;
}

std::optional<int> KindOf(const std::string& how) {
  if (absl::StrContains(how, "exited")) return kExit;
  if (absl::StrContains(how, "SIGSEGV")) return kCrash;
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
  AfterIn(process, 20 * kMs + Random(300 * kMs), [this, process] { Join(process, ""); });
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
      Die(process, kKilled);
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
  process->killed = absl::StrContains(how, "killed");
  if (process->generation != 0) TellOthers(*process, "the group failed");
  for (const auto& [number, generation] : generations_) {
    if (std::count(generation->members.begin(), generation->members.end(), process) > 0) generation->failed = true;
  }
  Membership::Cause cause;
  cause.text = DeathText(process->rank, process->id, how);
  cause.killed = process->killed;
  cause.time_ns = now_us_ * 1000;
  After(Random(kReport), [this, process, cause] {
    if (!over_) HearFailure(process, cause);
  });
}

// The launcher does.
void Simulation::HearFailure(Process* process, const Membership::Cause& cause) {
  const bool someone_lives = std::any_of(slots_.begin(), slots_.end(), [](const Process* each) { return each->alive; });
  process->failed_us = now_us_;
  if (!process->was_ready) ++process->failed_starts;
  process->failed_as_member = process->is_member;
  process->failed_in = membership_->generation();
  process->owes |= process->is_member;
  if (process->is_member && !regroups_since_us_) regroups_since_us_ = now_us_;
  process->is_ready = process->is_member = false;
  if (membership_->OnFailure(process->slot, cause, Now())) return;
  const bool is_limit = absl::StrContains(membership_->ending(), kBarren);
  if (membership_->formed() && someone_lives && !is_limit) Violation("the job ends, although a process lives");
  End(membership_->formed() ? membership_->ending() : kNotStarted);
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

// Before the first generation a failure ends all ranks, and then the launcher starts again. That is not simulated.
void Simulation::Fault() {
  if (over_) return;
  if (!membership_->formed()) return After(Random(kFaultTime), [this] { Fault(); });
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

// A rank.

void Simulation::Join(Process* process, const std::string& reason) {
  Membership::Ask ask;
  ask.max_ranks = config_.max_ranks;
  ask.leave_timeout = absl::Microseconds(kLeaveTimeout);
  if (const auto verdict = process->failures.Verdict()) process->verdict = *verdict;
  ask.reason = process->verdict.empty() ? reason : process->verdict;
  if (process->generation != 0 && !ask.reason.empty()) In(*process).failed = true;
  process->generation = 0;
  process->waits = true;
  process->broken = process->trains = process->in_call = false;
  After(Random(kMs), [this, process, ask] {
    if (over_ || !process->alive) return;
    if (std::exchange(process->is_member, false) && !regroups_since_us_) {
      regroups_since_us_ = now_us_;
      left_because_ = ask.reason;
      ends_as_planned_ = ask.reason.empty();
    }
    process->is_ready = process->was_ready = true;
    process->failed_starts = 0;
    process->ready_at = std::max<int64_t>(Newest(), 0);
    if (!process->verdict.empty()) return membership_->OnEndJob(process->verdict);
    membership_->OnReady(process->slot, process->left, ask, Now());
  });
}

void Simulation::Leave(Process* process, const std::string& reason) {
  Trace(absl::StrCat("slot ", process->slot, " leaves generation ", process->generation, " with ", process->commits));
  if (process->trains && reason.empty()) {
    std::vector<int64_t>& planned = In(*process).leave_planned;
    planned.push_back(process->commits);
    if (planned.back() != planned.front()) Violation("ranks leave as planned with different numbers of steps");
  } else if (process->trains) {
    ++report_.repeated;
  }
  Join(process, reason);
}

// Of a failure. In a call it ends soon; otherwise the rank sees it at its next call.
void Simulation::Learn(Process* process, const std::string& why) {
  if (std::exchange(process->broken, true)) return;
  process->why = why;
  if (!process->in_call) return;
  AfterIn(process, Random(3 * kMs), [this, process, number = process->generation, call = process->calls] {
    if (process->generation == number && process->in_call && process->calls == call) Leave(process, process->why);
  });
}

void Simulation::TellOthers(const Process& process, const std::string& why) {
  for (Process* const other : In(process).members) {
    AfterIn(other, Random(kNotice), [this, other, why, number = process.generation] {
      if (other->generation == number) Learn(other, why);
    });
  }
}

// Why the generation before ended.
void Simulation::CountFailure(Process* process) {
  const std::string& reason = In(*process).reason;
  if (auto failure = OwnFailure(reason)) {
    if (failure->step < 0) failure->step = std::max<int64_t>(process->commits, 0);
    process->failures.Add(*failure);
  }
  if (const auto counted = FailureIn(*process, reason)) process->counted.push_back(*counted);
  AuditFailures(*process);
}

// An error in the step. Of the second one within the window the process ends.
void Simulation::FailStep(Process* process, int kind) {
  const std::string cause = kind == kSample ? absl::StrCat("sample ", errors_.size(), " is broken")
                                            : absl::StrCat("loss ", errors_.size(), " is not a number");
  errors_.push_back({kind, process->commits});
  const std::string reason = ErrorText({process->commits, process->rank, cause});
  TellOthers(*process, "the group failed: " + reason);
  const std::optional<int64_t> before = std::exchange(process->own_error, process->commits);
  const bool ends = before && process->commits - *before <= kFailureWindow && In(*process).members.size() > 1 &&
                    !(process->was_first && process->commits == 0);
  if (ends) return Die(process, "exited with code 1");
  Leave(process, reason);
}

// A collective. Once all ranks have entered it, each has its result, unless it hears of a failure before.
void Simulation::Enter(Process* process, int64_t fact, Then then) {
  if (process->broken) return Leave(process, process->why);
  Generation& generation = In(*process);
  const size_t ranks = generation.members.size(), call = process->calls++;
  if (generation.calls.size() <= call) generation.calls.resize(call + 1);
  Generation::Call& entered = generation.calls[call];
  entered.facts.resize(ranks);
  entered.facts[process->rank] = fact;
  entered.entered[process->rank] = std::move(then);
  process->in_call = true;
  if (entered.entered.size() < ranks) return;
  for (auto& [rank, next] : entered.entered) {
    Process* const member = generation.members[rank];
    AfterIn(member, Random(kMs), [this, member, number = generation.number, calls = call + 1, next = std::move(next)] {
      if (member->generation != number || member->calls != calls || !member->in_call) return;
      member->in_call = false;
      if (member->broken && Random(2) == 0) return Leave(member, member->why);
      next();
    });
  }
}

void Simulation::Form(Process* process, int64_t generation) {
  process->generation = process->left = generation;
  process->waits = false;
  process->calls = 0;
  if (!process->verdict.empty())
    Violation(absl::StrCat("the job goes on, although slot ", process->slot, " has ended it"));
  process->was_first |= generation == 1;
  CountFailure(process);
  if (process->broken) return Leave(process, process->why);
  AfterIn(process, Random(5 * kMs), [this, process] {
    Enter(process, 0, [this, process] {
      Enter(process, FactOf({ProgressOf(*process), process->part}), [this, process] { Plan(process); });
    });
  });
}

// All ranks make the same plan.
void Simulation::Plan(Process* process) {
  Generation& generation = In(*process);
  std::vector<Progress> ranks;
  std::vector<int64_t> commits;
  for (const int64_t fact : generation.calls[process->calls - 1].facts) {
    ranks.push_back(ProgressIn(fact));
    commits.push_back(ranks.back().commits);
  }
  generation.healing = PlanHealing(ranks);
  if (generation.healing.sources.empty()) {
    AuditLoss(generation);
    return Die(process, "exited with code 1");
  }
  if (process->part == StepPart::kGradients) {
    process->part = StepPart::kNothing;
    if (generation.healing.newest > ProgressOf(*process)) StepShards(process);
  }
  if (generation.healing.newest != 0) return Heal(process);
  Enter(process, static_cast<int64_t>(HashOf(process->state, process->initial, process->failures.failures())),
        [this, process, commits] {
          Generation& group = In(*process);
          std::vector<uint64_t> hashes;
          for (const int64_t fact : group.calls[process->calls - 1].facts)
            hashes.push_back(static_cast<uint64_t>(fact));
          group.healing = PlanStart(commits, hashes);
          Heal(process);
        });
}

void Simulation::Heal(Process* process) {
  if (!In(*process).healing.spreads) return HealState(process);
  int64_t has = 0;
  const auto& receivers = In(*process).healing.receivers;
  const bool receives = std::find(receivers.begin(), receivers.end(), process->rank) != receivers.end();
  for (size_t p = 0; p < kParameters && !receives; ++p) {
    if (process->part == StepPart::kNothing || process->shards[p] != kNoState) has |= int64_t{1} << p;
  }
  Enter(process, has, [this, process] { Spread(process); });
}

void Simulation::HealState(Process* process) {
  const Healing healing = In(*process).healing;
  const auto& receivers = healing.receivers;
  const bool receives = std::find(receivers.begin(), receivers.end(), process->rank) != receivers.end();
  const Then then = [this, process] { shards_ ? Divide(process) : Trust(process); };
  if (receivers.empty()) return then();
  if (receives && HealsInPlace(ProgressOf(*process), healing.newest)) {
    process->gave_up |= healing.newest > 0;
    process->commits = kNoState;
    process->state = 0;
  }
  In(*process).known[process->rank] = {process->initial, process->failures.failures(), process->counted};
  Enter(process, static_cast<int64_t>(process->state), [this, process, healing, receives, then] {
    if (receives) Take(process, healing);
    then();
  });
}

// Each source has sent a part.
void Simulation::Take(Process* process, const Healing& healing) {
  Generation& generation = In(*process);
  const std::vector<int64_t>& states = generation.calls[process->calls - 1].facts;
  const int first = healing.sources[0];
  for (const int source : healing.sources) {
    if (states[source] != states[first]) Violation("the sources of a state differ");
  }
  ++report_.healed;
  process->state = static_cast<uint64_t>(states[first]);
  process->commits = StepsOf(healing.newest);
  process->part = StepPart::kNothing;
  process->parameters.assign(kParameters, process->commits);
  process->shards.assign(kParameters, kNoState);
  process->initial = generation.known[first].initial;
  process->failures.Restore(generation.known[first].failures);
  process->counted = generation.known[first].counted;
}

// The state is the newest one, and so are the failures.
void Simulation::Trust(Process* process) {
  AuditFailures(*process);
  AuditEqual(*process);
  if (const auto verdict = process->failures.Verdict()) return Leave(process, *verdict);
  Train(process);
}

void Simulation::Train(Process* process) {
  if (!process->trains) {
    process->trains = true;
    process->next_check = process->commits + 1;
    AuditTraining(*process);
  }
  const auto step = [this, process] {
    if (process->broken) return Leave(process, process->why);
    const bool is_broken = process->commits == broken_step_ && process->rank == 0 && Random(8) != 0;
    if (is_broken) return FailStep(process, kSample);
    if (std::exchange(process->may_fail, false) && Random(8) == 0)
      return FailStep(process, kSample + static_cast<int>(Random(2)));
    if (process->commits == config_.steps) return Enter(process, 0, [this, process] { Finish(process); });
    const Then commit = [this, process] { shards_ ? Ready(process) : Commit(process); };
    if (!broadcasts_) return Enter(process, 0, commit);
    Enter(process, 0, [this, process, commit] { Enter(process, 0, commit); });  // the buffers
  };
  AfterIn(process, Random(20 * kMs), step);
}

void Simulation::CountStep(Process* process) {
  ++process->commits;
  process->part = StepPart::kNothing;
  After(Random(kMs), [this, process, step = process->commits] {
    if (over_ || !process->alive) return;
    if (process->is_member && step > reported_step_) {
      reported_step_ = step;
      progressed_us_ = progressed_us_.value_or(now_us_);
    }
    membership_->OnProgress(process->slot, step);
  });
}

void Simulation::Commit(Process* process) {
  if (!shards_) process->state = Applied(process->state, process->commits + 1);
  CountStep(process);
  AuditStep(*process);
  const auto go_on = [this, process] {
    if (process->commits < process->next_check) return Train(process);
    Enter(process,
          (process->regroups_in == process->generation ? 1 : 0) + (process->rank == 0 ? 2 * (1 + Random(3)) : 0),
          [this, process] { Agree(process); });
  };
  if (!checks_) return go_on();
  Enter(process, static_cast<int64_t>(process->state), [this, process, go_on] {
    const std::vector<int64_t>& states = In(*process).calls[process->calls - 1].facts;
    if (std::any_of(states.begin(), states.end(), [&](int64_t state) { return state != states[0]; }))
      Violation("ranks differ after a step");
    go_on();
  });
}

void Simulation::Agree(Process* process) {
  bool regroups = false;
  int64_t pause = 0;
  for (const int64_t fact : In(*process).calls[process->calls - 1].facts) {
    regroups |= fact % 2 != 0;
    pause = std::max(pause, fact / 2);
  }
  process->next_check = process->commits + pause;
  if (regroups) return Leave(process, "");
  Train(process);
}

void Simulation::Finish(Process* process) {
  Trace(absl::StrCat("slot ", process->slot, " finishes"));
  if (process->commits != config_.steps) Violation("a rank finishes before the last step");
  process->generation = 0;
  process->done = died_ = true;  // its state is not needed any more
  AfterIn(process, Random(50 * kMs), [this, process] {
    process->alive = false;
    process->is_done = true;
    process->is_member = false;
    membership_->OnSuccess(process->slot);
  });
}

}  // namespace lockstep::elastic::internal
