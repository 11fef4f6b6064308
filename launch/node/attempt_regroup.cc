// An attempt's actions for ranks that stay when another one fails, as the job has decided, and its texts to people
// about them.

#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/node/attempt.h"
#include "lockstep/launch/process/group_members.h"

namespace lockstep::launch {
namespace {

// After which a notice says which ranks have not left a broken generation, and how many of them it names.
constexpr absl::Duration kLongLeave = absl::Seconds(5);
constexpr size_t kMostNames = 4;

}  // namespace

// A program that does not ask for a generation would take a spare for a rank.
void Attempt::StartSpares() {
  if (!rank_links_.asked() || processes_.size() > options_.nproc_per_node) return;
  unasked_at_ = kNever;
  for (int i = 0; i < options_.spares && broken_.ok(); ++i) broken_.Update(StartRank(options_.nproc_per_node + i));
}

void Attempt::ReportUnasked() {
  unasked_at_ = kNever;
  if (!options_.on_notice) return;
  options_.on_notice("no rank has asked for a generation (launch/link), so no spare is started");
}

// The processes that the rank's earlier process left in its group end first.
absl::Status Attempt::StartRankAgain(int local_rank) {
  processes_.EndGroup(local_rank);
  events_.Restart(number(), FailureOf(outcomes_[local_rank]).status.message(), absl::ZeroDuration());
  return StartRank(local_rank);
}

// A process that cannot be started counts as one that failed at its start.
void Attempt::ReplaceRank(int local_rank) {
  const absl::Status started = StartRankAgain(local_rank);
  if (started.ok()) return;
  Failure failure;
  failure.status = started;
  failure.time_ns = MonotonicNanos();
  if (!rank_links_.OnEnd(local_rank, failure)) broken_.Update(started);
}

// Carries out what the job has decided about ranks that stay when another one fails. A process that cannot be started
// makes another decision due.
void Attempt::DoActions() {
  StartSpares();
  for (;;) {
    NotifyControl();
    rank_links_.UpdateStalls();
    if (const std::optional<int> slot = rank_links_.TakeStalled()) EndStalled(*slot);
    broken_.Update(rank_links_.status());
    const std::vector<NodeSlots::Action> actions = rank_links_.Take();
    for (const NodeSlots::Action& action : actions) Do(action);
    if (actions.empty()) break;
  }
}

// A job of one node decides at once.
void Attempt::NotifyControl() {
  if (!rank_links_.TakeChange()) return;
  control_.on_slots(rank_links_.slots(), rank_links_.port());
  AskControl();
}

void Attempt::Do(const NodeSlots::Action& action) {
  switch (action.kind) {
    case NodeSlots::Action::Kind::kGeneration:
      RecordGeneration(action.slot);
      break;
    case NodeSlots::Action::Kind::kOrder:
      if (rank_links_.plan().order == RegroupOrder::kNow) RecordLeaving();
      break;
    case NodeSlots::Action::Kind::kStart:
      ReplaceRank(action.slot);
      break;
    case NodeSlots::Action::Kind::kKill:
      KillLate(action.slot);
      break;
    case NodeSlots::Action::Kind::kGiveUp:
      NotifyGivenUp(action.slot);
      break;
  }
}

void Attempt::KillLate(int slot) {
  Outcome& outcome = outcomes_[slot];
  if (outcome.ended) return;
  const std::string what = absl::StrCat("left generation ", rank_links_.plan().generation, " in time");
  if (options_.on_notice) options_.on_notice(absl::StrCat(NameOf(slot), " has not ", what, " and is killed"));
  outcome.end.message = absl::StrCat("it had not ", what);
  outcome.did_not_leave = true;
  kill(-outcome.end.pid, SIGKILL);
}

void Attempt::NotifyGivenUp(int slot) const {
  if (!options_.on_notice) return;
  const SlotState& state = rank_links_.slots().slots()[slot];
  options_.on_notice(absl::StrCat(state.failure.status.message(), "; local rank ", slot, " is not started again",
                                  state.unfit ? "" : ", since five of its processes in succession have not joined"));
}

// Its end is a failure, after which another process takes its place.
void Attempt::EndStalled(int slot) {
  if (outcomes_[slot].ended) return;
  if (options_.on_notice) {
    options_.on_notice(absl::StrCat(NameOf(slot), " has kept the others waiting for --stall_timeout, ",
                                    absl::FormatDuration(options_.stall_timeout), ", and is killed"));
  }
  kill(-outcomes_[slot].end.pid, SIGKILL);
}

std::string Attempt::NameOf(int slot) const {
  const pid_t pid = outcomes_[slot].end.pid;
  return absl::StrCat("rank ", rank_links_.slots().place(slot).rank, " (local rank ", slot, ", pid ", pid,
                      IsStopped(pid) ? ", stopped)" : ")");
}

void Attempt::RecordLeaving() {
  if (tell_at_ != kNever) return;
  leaving_because_ = rank_links_.plan().order_reason;
  tell_at_ = After(kLongLeave);
}

// The ranks that are left wait for members that take long to leave a broken generation.
void Attempt::ReportWhoIsAwaited() {
  tell_at_ = kNever;
  std::vector<std::string> awaited;
  for (int slot = 0; slot < static_cast<int>(outcomes_.size()); ++slot) {
    if (!outcomes_[slot].ended && rank_links_.slots().IsMember(slot)) awaited.push_back(NameOf(slot));
  }
  if (awaited.empty() || !options_.on_notice) return;
  const size_t others = awaited.size() - std::min(awaited.size(), kMostNames);
  awaited.resize(awaited.size() - others);
  options_.on_notice(absl::StrCat(leaving_because_, "; the next generation waits for ", absl::StrJoin(awaited, ", "),
                                  others > 0 ? absl::StrCat(" and ", others, " others") : ""));
}

// When the first process of this node is told of it.
void Attempt::RecordGeneration(int slot) {
  const RankGeneration generation = rank_links_.slots().GenerationOf(slot);
  if (std::exchange(generation_of_ranks_, generation.number) == generation.number) return;
  tell_at_ = kNever;
  for (Outcome& outcome : outcomes_) {
    const int rank = rank_links_.slots().place(outcome.end.local_rank).rank;
    if (rank >= 0) outcome.end.rank = rank;
  }
  const int ranks = generation.world_size;
  events_.Generation(generation.number, ranks, generation.reason);
  if (!options_.on_notice) return;
  const int others = options_.nproc_per_node - generation.local_world_size;
  if (generation.number == 1 && others > 0) {
    options_.on_notice(absl::StrCat("the program takes ", ranks, ranks == 1 ? " rank" : " ranks", " at most; ", others,
                                    others == 1 ? " process waits" : " processes wait", " to take a rank's place"));
  }
  if (generation.number == 1) return;
  const std::string reason = generation.reason.empty() ? "" : absl::StrCat(generation.reason, "; ");
  options_.on_notice(
      absl::StrCat(reason, "generation ", generation.number, " has ", ranks, ranks == 1 ? " rank" : " ranks"));
}

}  // namespace lockstep::launch
