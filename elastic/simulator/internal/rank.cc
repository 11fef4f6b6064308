// A rank, as elastic::World has it.

#include <stdint.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/simulator/internal/process.h"
#include "lockstep/elastic/simulator/internal/simulation.h"
#include "lockstep/tools/launch/internal/membership.h"

namespace lockstep::elastic::internal {
namespace {

using launch::internal::Membership;

int64_t FactOf(const Progress& progress) { return (progress.commits + 1) * 4 + static_cast<int64_t>(progress.part); }
Progress ProgressIn(int64_t fact) { return {fact / 4 - 1, static_cast<StepPart>(fact % 4)}; }

// Of the state that is kept: failures belong to it.
uint64_t HashOf(uint64_t state, int initial, const std::vector<Failure>& failures) {
  state = Applied(state, initial);
  for (const Failure& failure : failures)
    state = Applied(state, failure.step) + std::hash<std::string>()(failure.cause);
  return state;
}

}  // namespace

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
  process->finished_in = std::exchange(process->generation, 0);
  process->done = died_ = true;  // its state is not needed any more
  After(Random(kMs), [this] {
    if (!over_) HearDone();
  });
  const int64_t exit_us = Random(8) == 0 ? Random(3 * kLeaveTimeout) : Random(50 * kMs);
  AfterIn(process, exit_us, [this, process] {
    if (config_.faults > 0 && Random(10) == 0) return Die(process, kHows[Random(4)]);
    HearDone();
    process->alive = false;
    process->is_done = true;
    membership_->OnSuccess(process->slot);
  });
}

// What processes have said before they ended is heard before their ends.
void Simulation::HearDone() {
  for (Process* const process : slots_) {
    if (!process->done || process->has_done) continue;
    process->has_done = true;
    process->is_member = false;
    membership_->OnDone(process->slot, /*all=*/true);
  }
}

}  // namespace lockstep::elastic::internal
