#include "lockstep/elastic/simulator/internal/simulation.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/internal/healing_plan.h"

namespace lockstep::elastic::internal {
namespace {

using launch::internal::Membership;
using Kind = Membership::Decision::Kind;

constexpr int64_t kMs = 1000, kSecond = 1000 * kMs;
constexpr int64_t kHorizon = 600 * kSecond;  // nobody may still train then
constexpr int64_t kMostEvents = 50000;       // nor may so much happen
constexpr int64_t kFaultTime = 400 * kMs;    // within which faults happen
constexpr int64_t kLeaveTimeout = 2 * kSecond;
constexpr int64_t kNotice = 15 * kMs;  // until ranks know of a death

// The state after one more step. A state is a hash of the steps in their order, so a step shows that is missing, that was
// applied twice or in another order.
uint64_t Applied(uint64_t state, int64_t step) { return state * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step); }

constexpr uint64_t kInitialState = 1;

}  // namespace

struct Simulation::Process {
  int slot = 0;
  bool alive = true;
  int64_t stopped_until_us = 0;
  int64_t generation = 0;  // that it is in; 0: it waits for one, or starts
  int64_t left = 0;        // the last one that it was in
  int rank = 0;
  bool waits = false;     // in Join()
  bool broken = false;    // it knows that its generation is
  bool trains = false;    // in this generation
  bool regroups = false;  // after a step
  int64_t commits = 0;    // steps in its state
  uint64_t state = kInitialState;
  bool has_trained = false;
  size_t calls = 0;  // collectives of this generation that it has entered
  bool in_call = false;
  int64_t next_check = 0;
  bool may_fail = true;  // by itself, once
  bool done = false;     // it has finished, and ends
};

// What ranks tell each other in their collectives.
struct Simulation::Generation {
  struct Call {
    std::vector<int64_t> facts;  // by rank
    std::map<int, Then> entered;
  };
  int64_t number = 0;
  std::vector<Process*> members;
  std::vector<Call> calls;
  Healing healing;
  std::vector<int64_t> leave_planned;  // the steps of ranks that leave as planned
};

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

void Simulation::Violation(const std::string& text) {
  Trace("VIOLATION " + text);
  if (report_.violation.empty()) report_.violation = absl::StrCat(text, " (event ", report_.events, ")");
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

int64_t Simulation::Newest() const {
  int64_t newest = kNoState;
  for (const auto& process : processes_) {
    if (process->alive && !process->done) newest = std::max(newest, process->commits);
  }
  return newest;
}

Simulation::Report Simulation::Run() {
  Membership::Limits limits;
  limits.ranks = config_.ranks;
  limits.spares = config_.spares;
  limits.wait_for_ranks = absl::Seconds(60);
  if (Random(2) == 0) limits.head_start = absl::Milliseconds(200);
  membership_.emplace(limits, Now());
  checks_ = Random(2) == 0;
  broadcasts_ = Random(2) == 0;
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
      if (death.event == report_.events && process->alive && !process->done) Die(process, "SIGKILL");
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
  processes_.push_back(std::make_unique<Process>());
  Process* const process = slots_[slot] = processes_.back().get();
  process->slot = slot;
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

void Simulation::Obey(const Membership::Decision& decision) {
  if (decision.kind == Kind::kForm) {
    ++report_.generations;
    report_.most_ranks = std::max<int64_t>(report_.most_ranks, static_cast<int64_t>(decision.slots.size()));
    auto generation = std::make_unique<Generation>();
    generation->number = membership_->generation();
    for (const int slot : decision.slots) generation->members.push_back(slots_[slot]);
    const int64_t number = generation->number;
    generations_[number] = std::move(generation);
    for (size_t rank = 0; rank < decision.slots.size(); ++rank) {
      Process* const process = slots_[decision.slots[rank]];
      AfterIn(process, Random(2 * kMs), [this, process, number, rank] {
        if (!process->waits) Violation(absl::StrCat("slot ", process->slot, " does not wait for a generation"));
        process->rank = static_cast<int>(rank);
        Form(process, number);
      });
    }
    return;
  }
  const int64_t number = membership_->generation();
  for (const int slot : decision.slots) {
    Process* const process = slots_[slot];
    if (decision.kind == Kind::kStart) Start(slot);
    if (decision.kind == Kind::kKill && process->alive) Die(process, "killed late");
    AfterIn(process, Random(2 * kMs), [this, process, number, kind = decision.kind] {
      const bool is_in = process->generation == number;
      if (kind == Kind::kNow && is_in) Learn(process);
      // The order may come before the generation.
      if (kind == Kind::kNow && process->waits && process->left < number) process->broken = true;
      if (kind == Kind::kAfterStep && is_in) process->regroups = true;
    });
  }
}

// The others hear of it from the group's watch, and from the launcher.
void Simulation::Die(Process* process, const std::string& how) {
  Trace(absl::StrCat("slot ", process->slot, " dies: ", how));
  died_ = true;
  process->alive = false;
  if (process->generation != 0) {
    for (Process* const other : In(*process).members) {
      const int64_t number = process->generation;
      AfterIn(other, Random(kNotice), [this, other, number] {
        if (other->generation == number) Learn(other);
      });
    }
  }
  Membership::Cause cause;
  cause.text = absl::StrCat("slot ", process->slot, " died");
  cause.killed = true;
  cause.time_ns = now_us_ * 1000;
  After(Random(5 * kMs), [this, process, cause] {
    if (over_) return;
    const bool someone_lives =
        std::any_of(slots_.begin(), slots_.end(), [](const Process* each) { return each->alive; });
    if (membership_->OnFailure(process->slot, cause, Now())) return;
    const bool is_limit = absl::StrContains(membership_->ending(), "generations ended before they completed a step");
    if (membership_->formed() && someone_lives && !is_limit) Violation("the job ends, although a process lives");
    End(membership_->formed() ? "barren generations" : "not started");
  });
}

void Simulation::End(const std::string& result) {
  Trace("the job ends: " + result);
  over_ = true;
  report_.result = result;
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
    alive[0]->stopped_until_us = now_us_ + Random(2 * kLeaveTimeout);
    Trace(absl::StrCat("slot ", alive[0]->slot, " is stopped"));
    return;
  }
  if (kind == 9) {  // only new processes are left
    alive.erase(std::remove_if(alive.begin(), alive.end(), [](const Process* each) { return !each->has_trained; }),
                alive.end());
  }
  const size_t deaths = kind < 6 ? 1 : kind == 6 ? 2 : kind < 9 ? alive.size() - 1 : alive.size();
  for (size_t i = 0; i < std::min(deaths, alive.size()); ++i) Die(alive[i], "SIGKILL");
}

// A rank.

void Simulation::Join(Process* process, const std::string& reason) {
  Membership::Ask ask;
  ask.max_ranks = config_.max_ranks;
  ask.leave_timeout = absl::Microseconds(kLeaveTimeout);
  ask.reason = reason;
  process->generation = 0;
  process->waits = true;
  process->broken = process->trains = process->in_call = false;
  After(Random(kMs), [this, process, ask] {
    if (!over_ && process->alive) membership_->OnReady(process->slot, process->left, ask, Now());
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
void Simulation::Learn(Process* process) {
  if (std::exchange(process->broken, true) || !process->in_call) return;
  AfterIn(process, Random(3 * kMs), [this, process, number = process->generation, call = process->calls] {
    if (process->generation == number && process->in_call && process->calls == call) Leave(process, "the group failed");
  });
}

// A collective. Once all ranks have entered it, each has its result, unless it hears of a failure before.
void Simulation::Enter(Process* process, int64_t fact, Then then) {
  if (process->broken) return Leave(process, "the group failed");
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
      if (member->broken && Random(2) == 0) return Leave(member, "the group failed");
      next();
    });
  }
}

void Simulation::Form(Process* process, int64_t generation) {
  process->generation = process->left = generation;
  process->waits = false;
  process->regroups = false;
  process->calls = 0;
  if (process->broken) return Leave(process, "the group failed");
  AfterIn(process, Random(5 * kMs), [this, process] {
    Enter(process, 0, [this, process] { Enter(process, process->commits, [this, process] { Plan(process); }); });
  });
}

// All ranks make the same plan.
void Simulation::Plan(Process* process) {
  Generation& generation = In(*process);
  const std::vector<int64_t> commits = generation.calls[process->calls - 1].facts;
  generation.healing = PlanHealing(commits);
  if (generation.healing.newest == kNoState) {
    if (Newest() > 0) Violation("no rank of a generation has a state, although a process has one");
    return Die(process, "no state");
  }
  if (generation.healing.newest > 0) return Heal(process);
  Enter(process, static_cast<int64_t>(process->state), [this, process, commits] {
    Generation& group = In(*process);
    std::vector<uint64_t> hashes;
    for (const int64_t fact : group.calls[process->calls - 1].facts) hashes.push_back(static_cast<uint64_t>(fact));
    group.healing = PlanStart(commits, hashes);
    Heal(process);
  });
}

void Simulation::Heal(Process* process) {
  const Healing healing = In(*process).healing;
  if (healing.receivers.empty()) return Train(process);
  const auto& receivers = healing.receivers;
  const bool receives = std::find(receivers.begin(), receivers.end(), process->rank) != receivers.end();
  if (receives && HealsInPlace(process->commits, healing.newest)) {
    process->commits = kNoState;
    process->state = 0;
  }
  Enter(process, static_cast<int64_t>(process->state), [this, process, healing, receives] {
    if (!receives) return Train(process);
    // Each source has sent a part.
    const std::vector<int64_t>& states = In(*process).calls[process->calls - 1].facts;
    for (const int source : healing.sources) {
      if (states[source] != states[healing.sources[0]]) Violation("the sources of a state differ");
    }
    ++report_.healed;
    process->state = static_cast<uint64_t>(states[healing.sources[0]]);
    process->commits = healing.newest;
    Train(process);
  });
}

void Simulation::Train(Process* process) {
  if (!process->trains) {
    process->trains = true;
    process->next_check = process->commits + 1;
    AuditTraining(*process);
  }
  const auto step = [this, process] {
    if (process->broken) return Leave(process, "the group failed");
    if (std::exchange(process->may_fail, false) && Random(8) == 0) {
      // Its own error, of which it tells the others.
      for (Process* const other : In(*process).members) {
        AfterIn(other, Random(kNotice), [this, other, number = process->generation] {
          if (other->generation == number) Learn(other);
        });
      }
      return Leave(process, "an error in the step");
    }
    if (process->commits == config_.steps) return Enter(process, 0, [this, process] { Finish(process); });
    const Then commit = [this, process] { Commit(process); };
    if (!broadcasts_) return Enter(process, 0, commit);
    Enter(process, 0, [this, process, commit] { Enter(process, 0, commit); });  // the buffers
  };
  AfterIn(process, Random(20 * kMs), step);
}

void Simulation::Commit(Process* process) {
  ++process->commits;
  process->state = Applied(process->state, process->commits);
  After(Random(kMs), [this, process, step = process->commits] {
    if (!over_ && process->alive) membership_->OnProgress(process->slot, step);
  });
  const auto go_on = [this, process] {
    if (process->commits < process->next_check) return Train(process);
    Enter(process, (process->regroups ? 1 : 0) + (process->rank == 0 ? 2 * (1 + Random(3)) : 0),
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
    membership_->OnSuccess(process->slot);
  });
}

void Simulation::AuditEvent() {
  for (const auto& process : processes_) {
    if (process->alive && process->commits != kNoState && process->state != states_.at(process->commits))
      Violation(absl::StrCat("slot ", process->slot, " has a wrong state of ", process->commits, " steps"));
  }
  const int64_t newest = Newest();
  for (const auto& process : processes_) {
    process->has_trained |= process->commits > 0;
    if (process->alive && process->has_trained && process->commits < newest - 1)
      Violation(absl::StrCat("slot ", process->slot, " has trained, and its state has ", process->commits, " of ",
                             newest, " steps"));
  }
  if (newest < newest_ && !died_ && !over_ && membership_->generation() > 0 && Newest() != kNoState)
    Violation(absl::StrCat("the newest state has ", newest, " steps, and had ", newest_));
  newest_ = newest;
}

void Simulation::AuditTraining(const Process& process) {
  const Generation& generation = In(process);
  if (process.commits != generation.healing.newest)
    Violation(absl::StrCat("a rank trains with ", process.commits, " of ", generation.healing.newest, " steps"));
  for (const auto& other : processes_) {
    if (other->alive && other->commits > generation.healing.newest && other->generation != generation.number &&
        other->left < generation.number)
      Violation(absl::StrCat("generation ", generation.number, " begins with ", generation.healing.newest,
                             " steps, but slot ", other->slot, " has ", other->commits));
  }
}

}  // namespace lockstep::elastic::internal
