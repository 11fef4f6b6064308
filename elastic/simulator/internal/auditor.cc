// The rules of simulation.h.

#include <stdio.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/elastic/simulator/internal/process.h"
#include "lockstep/elastic/simulator/internal/simulation.h"

namespace lockstep::elastic::internal {
namespace {

constexpr int64_t kSlack = 10 * kMs;
// A rank that is ready takes part after so many steps: until the launcher knows, and until the next check.
constexpr int64_t kMostStepsOfWaiting = 8;

// The number behind the first `marker` in `text`.
std::optional<int> NumberAfter(const std::string& text, const std::string& marker) {
  int number = 0;
  const size_t at = text.find(marker);
  if (at == std::string::npos || sscanf(text.c_str() + at + marker.size(), "%d", &number) != 1) return std::nullopt;
  return number;
}

}  // namespace

int64_t Simulation::Newest() const {
  int64_t newest = kNoState;
  for (const auto& process : processes_) {
    if (process->alive && !process->done) newest = std::max(newest, process->steps.commits());
  }
  return newest;
}

size_t Simulation::MostRanks() const {
  return static_cast<size_t>(config_.max_ranks > 0 ? std::min(config_.max_ranks, config_.ranks) : config_.ranks);
}

void Simulation::AuditEvent() {
  for (const auto& process : processes_) {
    if (!process->alive || process->steps.commits() == kNoState) continue;
    const bool steps = process->steps.part() == StepPart::kOwnShards;
    if (process->state != states_.at(process->steps.commits() + (steps ? 1 : 0)))
      Violation(absl::StrCat("slot ", process->slot, " has a wrong state of ", process->steps.commits(), " steps"));
    if (shards_) AuditShards(*process);
  }
  const int64_t newest = Newest();
  for (const auto& process : processes_) {
    process->has_trained |= process->steps.commits() > 0;
    if (process->alive && process->has_trained && process->steps.commits() < newest - 1)
      Violation(absl::StrCat("slot ", process->slot, " has trained, and its state has ", process->steps.commits(),
                             " of ", newest, " steps"));
  }
  if (newest < newest_ && !died_ && !over_ && plan().generation > 0 && Newest() != kNoState)
    Violation(absl::StrCat("the newest state has ", newest, " steps, and had ", newest_));
  newest_ = newest;
  if (!over_) AuditTimes();
}

bool Simulation::HasFinished() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) { return process->has_done; });
}

bool Simulation::IsComplete() const {
  if (generations_.empty()) return false;
  const std::vector<Process*>& members = generations_.rbegin()->second->members;
  return absl::c_any_of(members, [](const Process* member) { return member->has_done; }) &&
         absl::c_all_of(members, [](const Process* member) { return member->has_done || member->failed_us; });
}

// When the place of a member that has failed is to be taken at the latest. A step of which the launcher hears when the
// generation is broken does not count: the others begin again.
int64_t Simulation::StartOf(const Process& process) const {
  const bool has_step = progressed_us_ && plan().generation > process.failed_in &&
                        (!regroups_since_us_ || *progressed_us_ < *regroups_since_us_);
  const int64_t head_start_ends = *process.failed_us + (has_head_start_ ? kHeadStart : 0);
  return has_step ? std::min(head_start_ends, std::max(*process.failed_us, *progressed_us_)) : head_start_ends;
}

// Nobody waits longer than the limits say.
void Simulation::AuditTimes() {
  for (const Process* const process : slots_) {
    if (process->failed_as_member && !HasFinished() && now() > StartOf(*process) + kSlack)
      Violation(absl::StrCat("slot ", process->slot, " gets no new process"));
  }
  if (!regroups_since_us_ || now() <= *regroups_since_us_ + kLeaveTimeout + kSlack) return;
  for (const Process* const member : generations_.rbegin()->second->members) {
    if (member->alive && member->is_member)
      Violation(absl::StrCat("slot ", member->slot, " does not leave, and is not killed"));
  }
}

// A generation is about to form. Its members have not heard of it yet.
void Simulation::AuditForm(const Generation& generation) {
  if (IsComplete()) Violation(absl::StrCat("generation ", generation.number, " forms, and all work is done"));
  const int64_t before = generations_.empty() ? 0 : generations_.rbegin()->first;
  if (generation.number != before + 1) Violation(absl::StrCat("generation ", generation.number, " follows ", before));
  AuditMembers(generation);
  AuditReason(generation);
  AuditBarren(generation);
}

void Simulation::AuditMembers(const Generation& generation) {
  std::vector<Process*> survivors;
  for (Process* const member :
       generations_.empty() ? std::vector<Process*>() : generations_.rbegin()->second->members) {
    if (member->is_ready) survivors.push_back(member);
    if (member->is_member)
      Violation(absl::StrCat("generation ", generation.number, " forms, but slot ", member->slot, " has not left"));
  }
  if (survivors.size() > generation.members.size() ||
      !std::equal(survivors.begin(), survivors.end(), generation.members.begin()))
    Violation(absl::StrCat("the ranks of generation ", generation.number, " are in another order than before"));
  size_t ready = 0, coming = 0;
  for (const Process* const process : slots_) {
    ready += process->is_ready;
    const bool may_come = !process->failed_us || MayStartAfter(*process);
    coming += !process->is_ready && !process->has_done && !process->is_given_up && may_come;
  }
  if (generation.members.size() != std::min(ready, MostRanks()))
    Violation(absl::StrCat("generation ", generation.number, " has ", generation.members.size(), " of ", ready,
                           " ranks that are ready, and of ", MostRanks(), " at most"));
  if (generation.number == 1 && static_cast<int>(ready) < config_.ranks)
    Violation(absl::StrCat("the first generation forms when ", ready, " ranks are ready"));
  if (generation.number > 1 && survivors.empty() && coming > 0 &&
      now() < regroups_since_us_.value_or(now()) + kWaitForAll)
    Violation(absl::StrCat("generation ", generation.number, " of new ranks does not wait for all"));
  std::set<int> local_ranks;
  for (const Process* const member : generation.members) {
    const int local_rank = plan().slots[member->slot].local_rank;
    if (!local_ranks.insert(local_rank).second || (member->local_rank >= 0 && member->local_rank != local_rank))
      Violation(absl::StrCat("slot ", member->slot, " has local rank ", local_rank, ", and had ", member->local_rank));
  }
}

// It names the process of the generation before that died first, one that was killed first of all. If none has, it has
// the error of the rank that left first.
void Simulation::AuditReason(const Generation& generation) {
  const auto key = [](const Process& process) {
    return std::make_tuple(!process.killed, process.died_us, *process.failed_us);
  };
  const Process *first = nullptr, *named = nullptr;
  const std::optional<int> id = NumberAfter(generation.reason, "pid ");
  for (const auto& process : processes_) {
    if (id == process->id) named = process.get();
    if (!process->failed_as_member || process->failed_in != generation.number - 1) continue;
    if (!first || key(*process) < key(*first)) first = process.get();
  }
  if (!first != !named || (first && (!named->failed_us || key(*first) != key(*named))))
    Violation(absl::StrCat("process ", first ? first->id : 0, " failed first, and the reason is: ", generation.reason));
  if (!first && !absl::StrContains(generation.reason, left_because_))
    Violation(absl::StrCat("a rank left because of ", left_because_, ", and the reason is: ", generation.reason));
}

// The launcher ends a job after 10 broken generations without a step.
void Simulation::AuditBarren(const Generation& generation) {
  if (generation.number > 1 && !ends_as_planned_) ++barren_;
  if (progressed_us_) barren_ = 0;
  progressed_us_.reset();
  if (barren_ >= kMostBarren) Violation(absl::StrCat("the job goes on after ", barren_, " generations without a step"));
}

// Members must leave at once.
void Simulation::AuditBreak() {
  if (!generations_.rbegin()->second->failed)
    Violation(absl::StrCat("generation ", plan().generation, " is broken, although nothing has failed"));
}

// Members must leave after a step.
void Simulation::AuditPlan() {
  const Generation& generation = *generations_.rbegin()->second;
  const bool someone_waits = std::any_of(slots_.begin(), slots_.end(), [&](Process* process) {
    return process->is_ready && !absl::c_linear_search(generation.members, process);
  });
  if (!someone_waits || generation.members.size() >= MostRanks() || HasFinished())
    Violation(absl::StrCat("generation ", generation.number, " must leave after a step, but nobody needs a place"));
}

bool Simulation::MayStartAfter(const Process& before) const { return !HasFinished() || before.owes; }

void Simulation::AuditStart(const Process& before) {
  if (!before.failed_us) return Violation(absl::StrCat("slot ", before.slot, " gets a process, and has one"));
  const std::string start = absl::StrCat("the process of slot ", before.slot, " starts ");
  if (IsComplete() || !MayStartAfter(before)) Violation(start + "although nothing is left to do");
  if (before.failed_starts >= kMostFailedStarts) Violation(start + "although so many have failed before");
  if (!before.failed_as_member || HasFinished()) return;
  if (now() > StartOf(before) + kSlack) Violation(start + "too late");
  const std::vector<Process*>& members = generations_.rbegin()->second->members;
  const bool others_go_on =
      std::any_of(members.begin(), members.end(), [](const Process* member) { return !member->failed_us; });
  if (others_go_on && now() < StartOf(before)) Violation(start + "before the others have completed a step");
}

void Simulation::AuditGiveUp(Process* process) {
  process->is_given_up = true;
  if (process->failed_starts < kMostFailedStarts)
    Violation(absl::StrCat("slot ", process->slot, " is given up after ", process->failed_starts, " failed starts"));
}

void Simulation::AuditKill(const Process& process) {
  if (process.has_done) Violation(absl::StrCat("slot ", process.slot, " is killed, and has done its work"));
  const int64_t time = regroups_since_us_.value_or(now()) + kLeaveTimeout;
  if (now() < time || now() > time + kSlack)
    Violation(absl::StrCat("slot ", process.slot, " is killed ", now() - time, " us after its time to leave"));
}

void Simulation::AuditTraining(const Process& process) {
  const Generation& generation = In(process);
  const int64_t newest = process.steps.CommitsIn(generation.healing.newest);
  if (process.steps.commits() != newest)
    Violation(absl::StrCat("a rank trains with ", process.steps.commits(), " of ", newest, " steps"));
  if (process.buffers != newest)
    Violation(absl::StrCat("a rank trains with the buffers of ", process.buffers, " of ", newest, " steps"));
  for (const auto& other : processes_) {
    // If all processes are new, they do again what a dead one still had to do. One that has done its work cannot help.
    const bool cannot_help = newest == 0 && other->has_done;
    if (other->alive && other->steps.commits() > newest && other->generation != generation.number &&
        other->left < generation.number && !cannot_help)
      Violation(absl::StrCat("generation ", generation.number, " begins with ", newest, " steps, but slot ",
                             other->slot, " has ", other->steps.commits()));
  }
  for (size_t p = 0; p < kParameters && shards_ && !process.lost; ++p) {
    const auto has_it = [p](const Process* member) { return member->shards[p] != kNoState; };
    const auto keepers = std::count_if(generation.members.begin(), generation.members.end(), has_it);
    if (keepers < std::min<int64_t>(static_cast<int64_t>(generation.members.size()), 2))
      Violation(absl::StrCat("ranks train, and ", keepers, " ranks have the optimizer's state of parameter ", p));
  }
}

// Between two events, the parameters and the optimizer's states that a process has are of the steps in its state.
void Simulation::AuditShards(const Process& process) {
  const bool steps = process.steps.part() == StepPart::kOwnShards;
  for (size_t p = 0; p < kParameters; ++p) {
    const bool has_it = process.shards[p] != kNoState;
    const int64_t expected = process.steps.commits() + (steps ? 1 : 0);
    if (has_it && process.shards[p] != expected)
      Violation(absl::StrCat("slot ", process.slot, " has the optimizer's state of parameter ", p, " of ",
                             process.shards[p], " steps, expected ", expected));
    if (process.parameters[p] != expected && (has_it || (!steps && !pieces_)))
      Violation(absl::StrCat("slot ", process.slot, " has parameter ", p, " of ", process.parameters[p],
                             " steps, expected ", expected));
  }
}

// No rank has a parameter, or its optimizer's state.
void Simulation::AuditLostShard(size_t p) {
  if (config_.faults == 0 && config_.deaths.size() < 2)
    Violation(absl::StrCat("one process has died, and the optimizer's state of parameter ", p, " is lost"));
  for (const auto& other : processes_) {
    if (other->alive && !other->done && other->steps.is_divided() && other->steps.commits() != kNoState &&
        other->shards[p] != kNoState && other->has_trained)
      Violation(absl::StrCat("the optimizer's state of parameter ", p, " is lost, but slot ", other->slot, " has it"));
  }
}

// A rank that is ready while others train does not wait for long if there is a place for it.
void Simulation::AuditStep(const Process& process) {
  const std::vector<Process*>& members = In(process).members;
  if (members.size() >= MostRanks() || HasFinished()) return;
  if (std::any_of(members.begin(), members.end(), [](const Process* member) { return member->done; })) return;
  for (Process* const other : slots_) {
    if (other->is_ready && !absl::c_linear_search(members, other) &&
        process.steps.commits() > other->ready_at + kMostStepsOfWaiting)
      Violation(absl::StrCat("slot ", other->slot, " has waited since step ", other->ready_at, " for a place"));
  }
}

// A generation begins for a rank.
void Simulation::AuditJoin(Process* process) {
  process->was_first |= process->generation == 1;
  if (const auto counted = FailureBefore(*process)) process->counted.push_back(*counted);
  AuditFailures(*process);
}

// A rank leaves. For its second error within the window it ends, unless it is alone or no step is complete; and it ends
// if the state is lost.
void Simulation::AuditLeave(Process* process, const absl::Status& status, const Departure& departure) {
  const GenerationFacts& facts = process->facts;
  const int64_t commits = process->steps.commits();
  if (facts.trains && !status.ok() && !facts.regroups) ++report_.counts["steps broken off"];
  const bool ends_job = departure.kind == Departure::Kind::kEndJob;
  if (process->steps.failures().Verdict().has_value() != ends_job)
    Violation(absl::StrCat("slot ", process->slot, " leaves although the job ends: ", departure.reason));
  if (facts.regroups) {
    std::vector<int64_t>& planned = In(*process).leave_planned;
    planned.push_back(commits);
    if (planned.back() != planned.front()) Violation("ranks leave as planned with different numbers of steps");
  }
  bool ends = status.ok();
  if (absl::IsDataLoss(status) && facts.trains && !facts.is_final) {
    const std::optional<int> heard = NumberAfter(std::string(status.message()), "rank ");
    const int culprit = facts.culprit.value_or(heard.value_or(facts.rank));
    if (culprit == facts.rank && (commits > 0 || !process->was_first)) {
      const std::optional<int64_t> before = std::exchange(process->last_error, commits);
      ends = before && commits - *before <= kFailureWindow && facts.world_size > 1;
    }
  } else if (absl::IsDataLoss(status)) {
    ends = true;
  }
  if (!ends_job && ends != (departure.kind == Departure::Kind::kEnd))
    Violation(absl::StrCat("slot ", process->slot, ends ? " does not end" : " ends", ": ", status.message()));
}

// The failure that the process's generation must count: of the processes that its reason names by their ids, or else
// the first error with which a member has left the one before.
std::optional<CountedFailure> Simulation::FailureBefore(const Process& process) const {
  const Generation& generation = *generations_.at(process.generation);
  const std::string& reason = generation.reason;
  if (absl::StrContains(reason, "; the job ends")) return std::nullopt;
  // A rank that was stuck counts also if another one died before.
  bool is_first = true, left_with_counts = true;
  for (const absl::string_view part : absl::StrSplit(reason, "; rank ")) {
    const std::optional<int> id = NumberAfter(std::string(part), "pid ");
    const auto death = id ? deaths_.find(*id) : deaths_.end();
    const std::optional<int> kind = death == deaths_.end() ? std::nullopt : death->second;
    if (kind && (is_first || *kind == kStuck))
      return CountedFailure{*kind, std::max<int64_t>(process.steps.commits(), 0)};
    if (id) left_with_counts = false;
    is_first = false;
  }
  for (const char* thing : {"sample ", "loss "}) {
    const bool counts = generation.left_with && left_with_counts;
    const auto id = counts ? NumberAfter(*generation.left_with, thing) : std::nullopt;
    if (id) return errors_.at(*id);
  }
  return std::nullopt;
}

// World has counted what the auditor has.
void Simulation::AuditFailures(const Process& process) {
  bool ends = false;
  if (!process.counted.empty()) {
    const CountedFailure last = process.counted.back();
    ends = std::count_if(process.counted.begin(), process.counted.end(), [&](const CountedFailure& each) {
             return each.kind == last.kind && each.step >= last.step - kFailureWindow;
           }) >= kFailuresPerCause;
  }
  const std::optional<std::string> verdict = process.steps.failures().Verdict();
  if (ends && !verdict) Violation("the job goes on, although one cause came too often");
  if (!ends && verdict) Violation(absl::StrCat("the job must not end: ", *verdict));
}

// A rank has healed.
void Simulation::AuditEqual(const Process& process) {
  std::string healed = absl::StrCat("began as process ", process.initial);
  for (const launch::StepFailure& each : process.steps.failures().failures())
    absl::StrAppend(&healed, "; ", ErrorText(each));
  std::string& first = In(process).healed;
  if (first.empty()) first = healed;
  if (first != healed) Violation(absl::StrCat("ranks differ: ", first, " and ", healed));
}

// No rank of a generation has a state.
void Simulation::AuditLoss(const Generation& generation) {
  if (Newest() > 0) Violation("no rank of a generation has a state, although a process has one");
  if (std::none_of(generation.members.begin(), generation.members.end(),
                   [](const Process* member) { return member->gave_up; }))
    Violation("ranks have lost their first state");
}

void Simulation::AuditEnd(const std::string& result) {
  if (result == "success") {
    for (const Process* const member : generations_.rbegin()->second->members) {
      const bool is_missed = !member->failed_us || !IsComplete();
      if (!member->is_done && is_missed)
        Violation(absl::StrCat("the job succeeds, but slot ", member->slot, " has not finished"));
    }
  } else if (absl::StrContains(result, kBarren)) {
    if (progressed_us_ || barren_ + 1 < kMostBarren)
      Violation(absl::StrCat("the job ends after ", barren_ + 1, " generations without a step"));
  } else if (result != kNotStarted && !IsVerdict(result)) {
    // The first generation has a rank in every place.
    const bool lacks_a_place =
        generations_.empty() && absl::c_any_of(slots_, [](const Process* process) { return process->is_given_up; });
    for (const Process* const process : slots_) {
      if (!process->is_done && !process->is_given_up && !lacks_a_place)
        Violation(absl::StrCat("the job ends, although slot ", process->slot, " may get a process: ", result));
    }
  }
}

}  // namespace lockstep::elastic::internal
