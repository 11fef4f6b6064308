// A rank, as elastic::World has it: RankSteps decides, and the ranks' collectives are simulated.

#include <stdint.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/elastic/simulator/internal/process.h"
#include "lockstep/elastic/simulator/internal/simulation.h"
#include "lockstep/launch/job/membership.h"

namespace lockstep::elastic::internal {
namespace {

int64_t FactOf(const Progress& progress) { return (progress.commits + 1) * 4 + static_cast<int64_t>(progress.part); }
Progress ProgressIn(int64_t fact) { return {fact / 4 - 1, static_cast<StepPart>(fact % 4)}; }

// Returns the hash of the state that is kept: failures belong to it.
uint64_t HashOf(uint64_t state, int initial, const std::vector<launch::StepFailure>& failures) {
  state = Applied(state, initial);
  for (const launch::StepFailure& failure : failures)
    state = Applied(state, failure.step) + std::hash<std::string>()(failure.cause);
  return state;
}

}  // namespace

void Simulation::Join(Process* process, const std::string& reason, const std::optional<launch::StepFailure>& failure) {
  launch::JoinOptions ask;
  ask.max_ranks = config_.max_ranks;
  ask.leave_timeout = absl::Microseconds(kLeaveTimeout);
  ask.reason = reason;
  ask.failure = failure;
  if (process->generation != 0 && !reason.empty()) In(*process).failed = true;
  process->generation = 0;
  process->waits = true;
  process->broken = process->in_call = false;
  After(Random(kMs), [this, process, ask] {
    if (over_ || !process->alive) return;
    const bool was_member = std::exchange(process->is_member, false);
    if (was_member && ask.failure && !left_with_) left_with_ = ask.failure->cause;
    if (was_member && !regroups_since_us_) {
      regroups_since_us_ = now();
      left_because_ = ask.reason;
      ends_as_planned_ = ask.reason.empty();
    }
    process->is_ready = process->was_ready = true;
    process->failed_starts = 0;
    process->ready_at = std::max<int64_t>(Newest(), 0);
    if (!process->verdict.empty()) return node_->OnEndJob(process->slot, process->verdict);
    node_->OnReady(process->slot, process->left, ask);
  });
}

// Its generation ends for the rank.
void Simulation::Leave(Process* process, const absl::Status& status) {
  const bool others_failed = process->steps.NeedsCause(process->facts, status) && process->broken;
  const Departure departure = process->steps.OnEnd(process->facts, status, others_failed);
  Trace(absl::StrCat("slot ", process->slot, " leaves generation ", process->generation, " with ",
                     process->steps.commits(), ": ", departure.reason));
  AuditLeave(process, status, departure);
  if (departure.failure) NotifyOthers(*process, "the group failed: " + departure.reason);
  if (departure.kind == Departure::Kind::kEnd)
    return status.ok() ? Finish(process) : Die(process, "exited with code 1");
  if (departure.kind == Departure::Kind::kEndJob) process->verdict = departure.reason;
  if (departure.takes_back) process->buffers = process->kept_buffers;
  Join(process, departure.reason, departure.failure);
}

void Simulation::LeaveBroken(Process* process) { Leave(process, absl::UnavailableError(process->why)); }

// Tells a rank of a failure. In a call it ends soon; otherwise the rank sees it at its next call.
void Simulation::Learn(Process* process, const std::string& why) {
  if (std::exchange(process->broken, true)) return;
  process->why = why;
  if (!process->in_call) return;
  AfterIn(process, Random(3 * kMs), [this, process, number = process->generation, call = process->calls] {
    if (process->generation == number && process->in_call && process->calls == call) LeaveBroken(process);
  });
}

void Simulation::NotifyOthers(const Process& process, const std::string& why) {
  for (Process* const other : In(process).members) {
    AfterIn(other, Random(kNotice), [this, other, why, number = process.generation] {
      if (other->generation == number) Learn(other, why);
    });
  }
}

// A collective. Once all ranks have entered it, each has its result, unless it hears of a failure before.
void Simulation::Enter(Process* process, int64_t fact, Then then) {
  if (process->broken) return LeaveBroken(process);
  Generation& generation = In(*process);
  const size_t ranks = generation.members.size(), call = process->calls++;
  if (generation.calls.size() <= call) generation.calls.resize(call + 1);
  Generation::Call& entered = generation.calls[call];
  entered.facts.resize(ranks);
  entered.facts[process->facts.rank] = fact;
  entered.entered[process->facts.rank] = std::move(then);
  process->in_call = true;
  if (entered.entered.size() < ranks) return;
  for (auto& [rank, next] : entered.entered) {
    Process* const member = generation.members[rank];
    AfterIn(member, Random(kMs), [this, member, number = generation.number, calls = call + 1, next = std::move(next)] {
      if (member->generation != number || member->calls != calls || !member->in_call) return;
      member->in_call = false;
      if (member->broken && Random(2) == 0) return LeaveBroken(member);
      next();
    });
  }
}

// Returns the facts of each rank in the collective that has just ended.
const std::vector<int64_t>& Simulation::FactsOf(const Process& process) {
  return In(process).calls[process.calls - 1].facts;
}

void Simulation::Form(Process* process, int64_t number, int rank) {
  process->generation = process->left = number;
  process->waits = false;
  process->calls = 0;
  const Generation& generation = In(*process);
  process->facts = GenerationFacts();
  process->facts.number = number;
  process->facts.rank = rank;
  process->facts.world_size = static_cast<int>(generation.members.size());
  if (!process->verdict.empty())
    Violation(absl::StrCat("the job goes on, although slot ", process->slot, " has ended it"));
  process->steps.OnJoin(process->facts, generation.failure);
  AuditJoin(process);
  if (process->broken) return LeaveBroken(process);
  AfterIn(process, Random(5 * kMs), [this, process] {
    Enter(process, 0, [this, process] {
      Enter(process, FactOf(process->steps.progress(/*node=*/0)), [this, process] { Plan(process); });
    });
  });
}

// All ranks make the same plan.
void Simulation::Plan(Process* process) {
  Generation& generation = In(*process);
  std::vector<Progress> ranks;
  std::vector<int64_t> commits;
  for (const int64_t fact : FactsOf(*process)) {
    ranks.push_back(ProgressIn(fact));
    commits.push_back(ranks.back().commits);
  }
  generation.healing = PlanHealing(ranks);
  if (generation.healing.sources.empty()) {
    AuditLoss(generation);
    return Leave(process, absl::DataLossError("no rank has a state"));
  }
  const StepUnderWay under_way = process->steps.OnMetInCommit(generation.healing);
  if (under_way == StepUnderWay::kApply) StepShards(process);
  if (under_way == StepUnderWay::kTakeBack) process->buffers = process->kept_buffers;
  if (generation.healing.newest != 0) return Heal(process);
  const uint64_t hash = HashOf(process->state, process->initial, process->steps.failures().failures());
  Enter(process, static_cast<int64_t>(hash), [this, process, commits] {
    const std::vector<int64_t>& facts = FactsOf(*process);
    In(*process).healing = PlanStart(commits, std::vector<uint64_t>(facts.begin(), facts.end()));
    Heal(process);
  });
}

void Simulation::Heal(Process* process) {
  const Healing& healing = In(*process).healing;
  if (!healing.spreads) return HealState(process);
  const bool has_all = process->steps.HasAllParameters(healing, process->facts.rank);
  const bool receives = healing.IsReceiver(process->facts.rank);
  Enter(process, receives ? 0 : has_all && !pieces_ ? -1 : ShardsOf(*process), [this, process] { Spread(process); });
}

void Simulation::HealState(Process* process) {
  const Healing healing = In(*process).healing;
  const Then then = [this, process] { shards_ ? Divide(process) : Trust(process); };
  if (healing.receivers.empty()) return then();
  if (process->steps.HealsInPlace(healing, process->facts.rank) && healing.IsReceiver(process->facts.rank)) {
    process->gave_up |= healing.newest > 0;
    process->state = 0;
  }
  Remember(process);
  Enter(process, static_cast<int64_t>(process->state), [this, process, healing, then] {
    if (healing.IsReceiver(process->facts.rank)) Take(process, healing);
    then();
  });
}

// Saves the state that the others may get.
void Simulation::Remember(Process* process) {
  In(*process).known[process->facts.rank] = {process->initial, process->steps.failures().failures(), process->counted};
}

// Each source has sent a part.
void Simulation::Take(Process* process, const Healing& healing) {
  const std::vector<int64_t>& states = FactsOf(*process);
  const int first = healing.sources[0];
  if (absl::c_any_of(healing.sources, [&](int source) { return states[source] != states[first]; }))
    Violation("the sources of a state differ");
  ++report_.counts["states healed"];
  process->state = static_cast<uint64_t>(states[first]);
  process->steps.OnHealed(healing);
  process->buffers = process->kept_buffers = process->steps.commits();
  process->parameters.assign(kParameters, pieces_ ? kNoState : process->steps.commits());
  process->shards.assign(kParameters, kNoState);
  process->initial = In(*process).known[first].initial;
  TakeFailures(process, first);
}

void Simulation::TakeFailures(Process* process, int from) {
  const Generation::Known& known = In(*process).known.at(from);
  process->steps.Restore(/*first_step=*/0, known.failures);
  process->counted = known.counted;
}

// The state is the newest one, and so are the failures.
void Simulation::Trust(Process* process) {
  AuditFailures(*process);
  AuditEqual(*process);
  if (process->steps.failures().Verdict()) return Leave(process, absl::AbortedError("the job ends"));
  process->facts.trains = true;
  process->pace.emplace(process->steps.commits(), Now());
  AuditTraining(*process);
  Train(process);
}

void Simulation::Train(Process* process) {
  AfterIn(process, Random(20 * kMs), [this, process] {
    if (process->broken) return LeaveBroken(process);
    process->buffers = process->steps.commits() + 1;
    const int64_t error = ErrorIn(process);
    if (error != 0 && !agrees_) return Leave(process, ErrorOf(error));
    const Then end = [this, process, error] { Enter(process, error, [this, process] { EndStep(process); }); };
    broadcasts_ ? Enter(process, 0, end) : end();
  });
}

// The number of the error that the rank makes in this step; 0: none.
int64_t Simulation::ErrorIn(Process* process) {
  const int64_t step = process->steps.commits();
  const bool is_broken = step == broken_step_ && process->facts.rank == 0 && Random(8) != 0;
  if (!is_broken && (!std::exchange(process->may_fail, false) || Random(8) != 0)) return 0;
  errors_.push_back({is_broken ? kSample : kSample + static_cast<int>(Random(2)), step});
  return static_cast<int64_t>(errors_.size());
}

absl::Status Simulation::ErrorOf(int64_t error) const {
  const bool is_sample = errors_[error - 1].kind == kSample;
  return absl::DataLossError(absl::StrCat(is_sample ? "sample " : "loss ", error - 1, " is broken"));
}

// All ranks have computed the step, or have got the error of one.
void Simulation::EndStep(Process* process) {
  const std::vector<int64_t>& errors = FactsOf(*process);
  const auto error = absl::c_find_if(errors, [](int64_t each) { return each != 0; });
  if (error != errors.end()) {
    const int culprit = static_cast<int>(error - errors.begin());
    const absl::Status status = ErrorOf(*error);
    if (*error % 2 == 0) {
      process->facts.heard = launch::StepFailure{-1, culprit, std::string(status.message())};
      return Leave(process, absl::DataLossError(absl::StrCat("rank ", culprit, " (host h): ", status.message())));
    }
    process->facts.culprit = culprit;
    return Leave(process, status);
  }
  if (process->steps.commits() == config_.steps) return Leave(process, absl::OkStatus());
  shards_ ? Ready(process) : Commit(process);
}

void Simulation::CountStep(Process* process) {
  process->steps.OnCommit();
  process->kept_buffers = process->buffers;
  // Its link keeps the order, so what it says of a step comes before it has left the generation.
  After(Random(kMs), [this, process, step = process->steps.commits(), number = process->generation] {
    if (over_ || !process->alive || !process->is_member || plan().generation != number) return;
    if (step > reported_step_) {
      reported_step_ = step;
      progressed_us_ = progressed_us_.value_or(now());
    }
    node_->OnProgress(process->slot, step);
  });
}

void Simulation::Commit(Process* process) {
  if (!shards_) process->state = Applied(process->state, process->steps.commits() + 1);
  CountStep(process);
  AuditStep(*process);
  const Then go_on = [this, process] {
    if (!process->pace->IsDue(process->steps.commits())) return Train(process);
    const int64_t regroups = process->regroups_in == process->generation ? 1 : 0;
    Enter(process, regroups + (process->facts.rank == 0 ? 2 * (1 + Random(3)) : 0),
          [this, process] { Agree(process); });
  };
  if (!checks_) return go_on();
  Enter(process, static_cast<int64_t>(process->state), [this, process, go_on] {
    const std::vector<int64_t>& states = FactsOf(*process);
    if (absl::c_any_of(states, [&](int64_t state) { return state != states[0]; }))
      Violation("ranks differ after a step");
    go_on();
  });
}

void Simulation::Agree(Process* process) {
  int64_t pause = 0;
  for (const int64_t fact : FactsOf(*process)) {
    process->facts.regroups |= fact % 2 != 0;
    pause = std::max(pause, fact / 2);
  }
  process->pace->OnCheck(process->steps.commits(), pause, Now());
  if (process->facts.regroups) return Leave(process, absl::AbortedError("the ranks regroup"));
  Train(process);
}

void Simulation::Finish(Process* process) {
  Trace(absl::StrCat("slot ", process->slot, " finishes"));
  if (process->steps.commits() != config_.steps) Violation("a rank finishes before the last step");
  process->finished_in = std::exchange(process->generation, 0);
  process->done = died_ = true;  // its state is not needed any more
  After(Random(kMs), [this] {
    if (!over_) OnDone();
  });
  const int64_t exit_us = Random(8) == 0 ? Random(3 * kLeaveTimeout) : Random(50 * kMs);
  AfterIn(process, exit_us, [this, process] {
    if (config_.faults > 0 && Random(10) == 0) return Die(process, kHows[Random(4)]);
    OnDone();
    process->alive = false;
    process->is_done = true;
    node_->OnEnd(process->slot, {});
  });
}

// Handles the reports that processes sent before they ended, before their ends.
void Simulation::OnDone() {
  for (Process* const process : slots_) {
    if (!process->done || process->has_done) continue;
    process->has_done = true;
    process->is_member = false;
    node_->OnDone(process->slot, /*all=*/true);
  }
}

}  // namespace lockstep::elastic::internal
