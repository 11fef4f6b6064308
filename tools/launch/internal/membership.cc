#include "lockstep/tools/launch/internal/membership.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::launch::internal {
namespace {

// If no member is left, how long the first new process waits for the others, so that they start as one generation.
constexpr absl::Duration kWaitForAll = absl::Seconds(30);
// A generation that lasts longer has not failed at its start, even if it completes no step.
constexpr absl::Duration kShortGeneration = absl::Seconds(10);
constexpr int kMostBarrenGenerations = 10;
// Failures of ranks that one line names.
constexpr size_t kMostCauses = 3;
// A process that fails so often before it is ready will always do so.
constexpr int kMostFailedStarts = 5;

std::string NumberText(int number, int least, const char* thing) {
  return absl::StrCat(number, " of at least ", least, " ", thing, least == 1 ? " is there" : "s are there");
}

}  // namespace

Membership::Membership(const Limits& limits, absl::Time now) : Membership(limits, Memory(), now) {
  AddNode(limits.ranks, limits.spares, now);
}

Membership::Membership(const Limits& limits, Memory memory, absl::Time now)
    : limits_(limits), memory_(std::move(memory)), asks_(memory_.slots.size()), formed_at_(now), regroups_since_(now) {
  for (Times& times : asks_) times.started = times.start_at = now;
  if (memory_.phase == Phase::kRegrouping) kill_at_ = now;
}

void Membership::SetAsk(int slot, const Ask& ask) {
  asks_[slot].ask = ask;
  if (memory_.phase == Phase::kRegrouping) kill_at_ = std::max(kill_at_, regroups_since_ + ask.leave_timeout);
}

int Membership::AddNode(int ranks, int spares, absl::Time now) {
  std::vector<Memory::Node>& nodes = memory_.nodes;
  const auto owes = [&](const Memory::Node& n) {
    const auto first = memory_.slots.begin() + n.first;
    return std::any_of(first, first + n.slots, [](const Slot& slot) { return slot.owes; });
  };
  const auto old = std::find_if(nodes.begin(), nodes.end(),
                                [&](const Memory::Node& n) { return n.gone && n.slots == ranks + spares && !owes(n); });
  const int index = static_cast<int>(old - nodes.begin());
  if (old == nodes.end()) {
    Memory::Node node;
    node.first = static_cast<int>(memory_.slots.size());
    node.slots = ranks + spares;
    nodes.push_back(node);
    memory_.slots.resize(memory_.slots.size() + node.slots);
    asks_.resize(memory_.slots.size());
  }
  Memory::Node& node = nodes[index];
  node.ranks = ranks;
  node.leaves = node.gone = false;
  for (int slot = node.first; slot < node.first + node.slots; ++slot) {
    memory_.slots[slot] = Slot();
    memory_.slots[slot].node = index;
    asks_[slot] = Times();
    asks_[slot].started = now;
  }
  return index;
}

bool Membership::WasInLastGeneration(const Slot& process) {
  const bool is_there = process.state == State::kReady || process.state == State::kDone;
  return process.state == State::kMember || (is_there && process.rank >= 0);
}

// The process of this slot is no more, and no other one takes its place.
void Membership::Drop(int slot) {
  Slot& process = memory_.slots[slot];
  if (process.state == State::kFinished) return;
  process.owes |= WasInLastGeneration(process);
  process.state = State::kLost;
  process.rank = process.local_rank = -1;
}

void Membership::LoseNode(int node, const Cause& cause, absl::Time now) {
  Memory::Node& lost = memory_.nodes[node];
  if (std::exchange(lost.gone, true)) return;
  const bool had_members = HasRanks(node);
  if (!formed()) regroups_since_ = now;  // another node may come
  for (int slot = lost.first; slot < lost.first + lost.slots; ++slot) Drop(slot);
  if (!had_members) return;
  if (Completes()) return NoteCause(cause);
  Break(cause, /*is_failure=*/true, now);
  if (memory_.over) verdict_ = absl::AbortedError(absl::StrCat(Reason(), memory_.ending));
}

void Membership::LeaveNode(int node, const std::string& reason) {
  Memory::Node& leaver = memory_.nodes[node];
  if (leaver.gone || std::exchange(leaver.leaves, true)) return;
  const std::vector<int> running = In(State::kMember);
  if (!HasRanks(node)) {
    DropLeavingNodes();
  } else if (memory_.phase == Phase::kRunning && !memory_.changes && memory_.finished_members == 0) {
    memory_.changes = true;
    memory_.reason = reason;
    Decide(Decision::Kind::kAfterStep, running, reason);
  }
}

// Whether a process of this node is a member, or has been one and has not ended since its work is done.
bool Membership::HasRanks(int node) const {
  return CountOnNode(In(State::kMember), node) + CountOnNode(In(State::kDone), node) > 0;
}

// Once none of their processes is a member.
void Membership::DropLeavingNodes() {
  for (size_t i = 0; i < memory_.nodes.size(); ++i) {
    Memory::Node& node = memory_.nodes[i];
    if (node.gone || !node.leaves || HasRanks(static_cast<int>(i))) continue;
    node.gone = true;
    for (int slot = node.first; slot < node.first + node.slots; ++slot) Drop(slot);
  }
}

void Membership::NeedNodes(int least, bool more_may_come) {
  least_nodes_ = least;
  more_may_come_ = more_may_come;
}

std::vector<int> Membership::In(State state) const {
  std::vector<int> slots;
  for (size_t i = 0; i < memory_.slots.size(); ++i) {
    if (memory_.slots[i].state == state) slots.push_back(static_cast<int>(i));
  }
  return slots;
}

int Membership::CountOnNode(const std::vector<int>& slots, int node) const {
  return static_cast<int>(
      std::count_if(slots.begin(), slots.end(), [&](int slot) { return memory_.slots[slot].node == node; }));
}

int Membership::NodesOf(const std::vector<int>& slots) const {
  std::set<int> nodes;
  for (const int slot : slots) nodes.insert(memory_.slots[slot].node);
  return static_cast<int>(nodes.size());
}

int Membership::LeastRanks(const std::vector<int>& slots) const {
  int least = 1;
  for (const int slot : slots) least = std::max(least, asks_[slot].ask.min_ranks);
  return least;
}

size_t Membership::MostRanks(const std::vector<int>& slots) const {
  size_t most = std::numeric_limits<size_t>::max();
  for (const int slot : slots) {
    if (const int asked = asks_[slot].ask.max_ranks; asked > 0) most = std::min<size_t>(most, asked);
  }
  return most;
}

std::string Membership::CausesText(const Memory& memory) {
  std::string text;
  for (const Cause& cause : memory.causes) absl::StrAppend(&text, text.empty() ? "" : "; ", cause.text);
  const int more = memory.failures - static_cast<int>(memory.causes.size());
  if (more > 0) absl::StrAppend(&text, "; and ", more, " more");
  return text;
}

std::string Membership::Reason() const { return memory_.causes.empty() ? memory_.reason : CausesText(memory_); }

std::string Membership::LateFailures(const Memory& memory) { return memory.complete ? CausesText(memory) : ""; }

void Membership::Decide(Decision::Kind kind, std::vector<int> slots, std::string reason) {
  if (slots.empty()) return;
  decisions_.push_back({kind, std::move(slots), std::move(reason)});
}

std::vector<Membership::Decision> Membership::Take() { return std::exchange(decisions_, {}); }

bool Membership::HaveAllFinished() const {
  return !In(State::kFinished).empty() && std::all_of(memory_.slots.begin(), memory_.slots.end(), [](const Slot& s) {
    return s.state == State::kFinished || s.state == State::kLost;
  });
}

bool Membership::finished() const {
  if (!formed()) return HaveAllFinished();
  return !memory_.over && (memory_.complete || memory_.finished_members > 0) &&
         std::none_of(memory_.slots.begin(), memory_.slots.end(),
                      [](const Slot& s) { return s.owes || s.state == State::kDone || WasInLastGeneration(s); });
}

// Whether the job is complete. A member that fails before it can say that its work is done has done it all the same, if
// another one says so of all. Only one that is left without having said so may have to do it again.
bool Membership::Completes() {
  const auto has_done = [this](int slot) {
    const Slot& process = memory_.slots[slot];
    return process.state == State::kDone || process.state == State::kFinished ||
           (memory_.agreed && !WasInLastGeneration(process));
  };
  const std::vector<int>& members = memory_.members;
  memory_.complete |= formed() && std::all_of(members.begin(), members.end(), has_done);
  if (!memory_.complete) return false;
  for (Slot& slot : memory_.slots) slot.owes = false;
  return true;
}

void Membership::OnDone(int slot, bool all) {
  Slot& process = memory_.slots[slot];
  if (process.state != State::kMember || memory_.resumes) return;
  process.state = State::kDone;
  ++memory_.finished_members;
  memory_.agreed |= all;
  Completes();
}

// A process whose work was done asks for a generation: there is more to do, also for the others.
void Membership::GoOnAfterWork(absl::Time now) {
  memory_.complete = memory_.agreed = false;
  memory_.resumes = true;
  memory_.finished_members = static_cast<int>(In(State::kFinished).size());
  for (Slot& slot : memory_.slots) {
    if (slot.state == State::kDone && slot.rank >= 0) slot.state = State::kMember;
  }
  for (const int slot : In(State::kAwaited)) {
    if (!MayRestart(slot, /*was_starting=*/false, now)) memory_.slots[slot].state = State::kGivenUp;
  }
}

bool Membership::awaits_start() const { return !In(State::kAwaited).empty(); }

bool Membership::SomebodyComes() const { return !In(State::kStarting).empty() || awaits_start(); }

void Membership::LookAt(absl::Time time) { next_look_ = std::min(next_look_, time); }

void Membership::OnStays() { memory_.stays = true; }

void Membership::OnReady(int slot, int64_t left, const Ask& ask, absl::Time now) {
  OnStays();
  Slot& process = memory_.slots[slot];
  // A process that joins again because its time was over may have got the generation meanwhile.
  if (process.state == State::kMember && left != memory_.generation) return;
  const bool had_done = process.state == State::kDone;
  const bool all_had_done = had_done && (memory_.complete || memory_.agreed);
  if (had_done) GoOnAfterWork(now);
  const bool leaves = process.state == State::kMember;
  const bool is_new = process.state == State::kStarting || (had_done && !leaves);
  process.state = State::kReady;
  asks_[slot].ask = ask;
  process.failed_starts = 0;
  // A failure may come before the step after which they should leave.
  const bool is_planned = memory_.changes && ask.reason.empty();
  if (leaves && memory_.phase == Phase::kRunning && !is_planned) {
    const std::string why = ask.reason.empty() ? "" : absl::StrCat(": ", ask.reason);
    Cause cause;
    cause.text = absl::StrCat("rank ", process.rank, " left generation ", memory_.generation, why);
    Break(cause, /*is_failure=*/false, now);
    if (memory_.over) verdict_ = absl::AbortedError(absl::StrCat(Reason(), memory_.ending));
  } else if (leaves && memory_.phase == Phase::kRunning) {
    Regroup(now);
  } else if (is_new && memory_.phase == Phase::kRunning) {
    TellThatOneIsReady(slot);
  }
  if (all_had_done) kill_at_ = absl::InfiniteFuture();  // the others may do something else before they ask
}

void Membership::OnEndJob(const std::string& reason) {
  if (verdict_.ok()) verdict_ = absl::AbortedError(reason);
}

// Unless it is a spare.
void Membership::TellThatOneIsReady(int slot) {
  const std::vector<int> running = In(State::kMember);
  const int index = memory_.slots[slot].node;
  const Memory::Node& node = memory_.nodes[index];
  const bool is_spare = CountOnNode(running, index) >= node.ranks || running.size() >= MostRanks(running);
  if (memory_.changes || node.leaves || is_spare || memory_.finished_members > 0) return;
  memory_.changes = true;
  memory_.reason = absl::StrCat(name_ ? name_(slot) : absl::StrCat("process ", slot), " is ready");
  Decide(Decision::Kind::kAfterStep, running, memory_.reason);
}

void Membership::OnProgress(int slot, int64_t step) {
  if (memory_.slots[slot].state != State::kMember || step <= memory_.step) return;
  memory_.step = step;
  memory_.progressed = true;
  memory_.barren = 0;
}

void Membership::Regroup(absl::Time now) {
  memory_.phase = Phase::kRegrouping;
  regroups_since_ = now;
  absl::Duration longest;
  for (const int slot : memory_.members) longest = std::max(longest, asks_[slot].ask.leave_timeout);
  kill_at_ = now + longest;
}

void Membership::Break(const Cause& cause, bool is_failure, absl::Time now) {
  if (memory_.phase == Phase::kRunning) {
    memory_.over = HasBarrenGenerations(now);
    Regroup(now);
  }
  // A member that leaves does so because of a failure, which may be seen later.
  if (is_failure) {
    NoteCause(cause);
  } else {
    memory_.reason = cause.text;
  }
  memory_.changes = false;
  Decide(Decision::Kind::kNow, In(State::kMember), cause.text);
}

// Of causes that are alike, the one that was seen first stays the first.
void Membership::NoteCause(const Cause& cause) {
  const auto key = [](const Cause& c) { return std::make_tuple(c.consequence, !c.killed, c.time_ns); };
  std::vector<Cause>& causes = memory_.causes;
  const auto place = std::upper_bound(causes.begin(), causes.end(), cause,
                                      [&](const Cause& a, const Cause& b) { return key(a) < key(b); });
  causes.insert(place, cause);
  if (causes.size() > kMostCauses) causes.pop_back();
  ++memory_.failures;
}

// Counts the generation that has just been broken.
bool Membership::HasBarrenGenerations(absl::Time now) {
  memory_.barren = memory_.progressed || now - formed_at_ >= kShortGeneration ? 0 : memory_.barren + 1;
  if (memory_.barren < kMostBarrenGenerations) return false;
  memory_.ending = absl::StrCat("; the last ", memory_.barren, " generations ended before they completed a step");
  return true;
}

RestartPolicy& Membership::Policy(absl::Time now) {
  if (policy_) return *policy_;
  int most = limits_.max_restarts;
  for (const Times& times : asks_) {
    if (limits_.max_restarts == 0) most = std::max(most, times.ask.max_restarts);
  }
  const bool any =
      most == 0 && std::any_of(asks_.begin(), asks_.end(), [](const Times& t) { return t.ask.max_restarts < 0; });
  policy_.emplace(any ? std::numeric_limits<int>::max() : most, limits_.restart_window);
  for (size_t i = 0; i < static_cast<size_t>(memory_.restarts); ++i) {
    const absl::Time made = i < limits_.earlier_restarts.size() ? limits_.earlier_restarts[i] : now;
    policy_->Restart(AttemptEnd::kFailed, absl::InfinitePast(), made);
  }
  return *policy_;
}

bool Membership::MayRestart(int slot, bool was_starting, absl::Time now) {
  // Only a process that was never ready has failed at its start.
  const absl::Time started = was_starting ? asks_[slot].started : absl::InfinitePast();
  if (!Policy(now).Restart(AttemptEnd::kFailed, started, now)) {
    memory_.ending = policy_->Ending(AttemptEnd::kFailed);
    return false;
  }
  ++memory_.restarts;
  return true;
}

bool Membership::OnFailure(int slot, const Cause& cause, absl::Time now) {
  if (!kept() || !verdict_.ok() || memory_.over || (!formed() && cause.exited)) return false;
  Slot& process = memory_.slots[slot];
  const bool was_done = process.state == State::kDone;
  const bool was_member = process.state == State::kMember || (was_done && process.rank >= 0);
  const bool was_starting = process.state == State::kStarting;
  process.owes |= WasInLastGeneration(process);
  process.state = was_done && !was_member ? State::kFinished : State::kAwaited;
  if (Completes()) {
    if (was_done || was_member) NoteCause(cause);
    process.rank = process.local_rank = -1;
    return true;
  }
  if (process.state == State::kFinished) return true;  // others have done its work again
  if (was_member) Break(cause, /*is_failure=*/true, now);
  memory_.over |= !MayRestart(slot, was_starting, now);
  if (memory_.over) return false;
  if (was_starting) ++process.failed_starts;
  if (was_starting) memory_.failed_start = cause.text;
  process.rank = process.local_rank = -1;
  process.state = process.failed_starts < kMostFailedStarts ? State::kAwaited : State::kGivenUp;
  asks_[slot].start_at = now + policy_->Pause();
  asks_[slot].head_start_ends = was_member ? now + limits_.head_start : absl::InfinitePast();
  if (process.state == State::kGivenUp) Decide(Decision::Kind::kGiveUp, {slot}, cause.text);
  return true;
}

void Membership::OnSuccess(int slot) {
  Slot& process = memory_.slots[slot];
  if (process.state == State::kMember) ++memory_.finished_members;
  process.owes &= process.state != State::kMember && process.state != State::kDone;
  process.state = State::kFinished;
  Completes();
}

void Membership::Update(absl::Time now) {
  next_look_ = absl::InfiniteFuture();
  awaited_.clear();
  if (!verdict_.ok() || memory_.over || memory_.complete || finished()) return;
  StartAwaited(now);
  if (memory_.phase == Phase::kRegrouping) {
    KillLate(now);
    DropLeavingNodes();
  }
  if (memory_.phase != Phase::kRunning && In(State::kMember).empty()) TryToForm(now);
}

// Whether ranks that are left are about to complete a step.
bool Membership::OthersGoOn() const {
  if (memory_.finished_members > 0 || (memory_.phase == Phase::kRunning && memory_.progressed)) return false;
  std::vector<int> others = In(State::kMember), all = others;
  for (const int ready : In(State::kReady)) {
    all.push_back(ready);
    if (rank(ready) >= 0) others.push_back(ready);
  }
  return !others.empty() && static_cast<int>(others.size()) >= LeastRanks(others) && NodesOf(all) >= least_nodes_;
}

void Membership::StartAwaited(absl::Time now) {
  std::vector<int> due;
  for (const int slot : In(State::kAwaited)) {
    Slot& process = memory_.slots[slot];
    // When a member has finished, the job is about to end. Only what was to be done in this slot is left.
    if (memory_.nodes[process.node].leaves || (memory_.finished_members > 0 && !process.owes)) continue;
    const Times& times = asks_[slot];
    if (times.start_at > now || (times.head_start_ends > now && OthersGoOn())) {
      LookAt(std::max(times.start_at, times.head_start_ends));
      continue;
    }
    process.state = State::kStarting;
    ++process.process;
    asks_[slot].started = now;
    due.push_back(slot);
  }
  Decide(Decision::Kind::kStart, due);
}

void Membership::KillLate(absl::Time now) {
  const std::vector<int> late = In(State::kMember);
  if (late.empty() || kill_at_ == absl::InfiniteFuture()) return;
  if (now < kill_at_) {
    LookAt(kill_at_);
    return;
  }
  kill_at_ = absl::InfiniteFuture();
  Decide(Decision::Kind::kKill, late, Reason());
}

bool Membership::MayForm(const std::vector<int>& ready, absl::Time now) {
  if (!formed()) return true;
  const bool has_survivor = std::any_of(ready.begin(), ready.end(), [&](int slot) { return rank(slot) >= 0; });
  if (has_survivor || !SomebodyComes()) return true;
  const absl::Time until = regroups_since_ + kWaitForAll;
  LookAt(until);
  return now >= until;
}

bool Membership::AllAreReady(const std::vector<int>& ready) const {
  std::vector<int> counts(memory_.nodes.size());
  for (const int slot : ready) ++counts[memory_.slots[slot].node];
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!memory_.nodes[i].gone && counts[i] < memory_.nodes[i].ranks) return false;
  }
  return true;
}

// The members of the generation before keep their order, and new ones follow.
std::vector<int> Membership::Candidates() const {
  std::vector<int> ready = In(State::kReady), candidates;
  std::stable_sort(ready.begin(), ready.end(), [&](int a, int b) {
    const auto order = [&](int slot) { return rank(slot) >= 0 ? rank(slot) : std::numeric_limits<int>::max(); };
    return order(a) < order(b);
  });
  std::vector<int> counts(memory_.nodes.size());
  for (const int slot : ready) {
    const int index = memory_.slots[slot].node;
    const Memory::Node& node = memory_.nodes[index];
    if (node.leaves || counts[index] == node.ranks) continue;
    ++counts[index];
    candidates.push_back(slot);
  }
  return candidates;
}

void Membership::TryToForm(absl::Time now) {
  std::vector<int> ready = Candidates();
  if (!formed() && !AllAreReady(ready)) return WaitForAll(ready.size(), now);
  // Also those whose processes are beyond the most ranks, or have done their work.
  std::vector<int> there = ready;
  for (const State state : {State::kDone, State::kFinished}) {
    const std::vector<int> done = In(state);
    there.insert(there.end(), done.begin(), done.end());
  }
  const int nodes = NodesOf(there);
  ready.resize(std::min(ready.size(), MostRanks(ready)));
  const int least = LeastRanks(ready), ranks = static_cast<int>(ready.size());
  if (ranks < least) {
    WaitForMore(NumberText(ranks, least, "rank"), now);
  } else if (nodes < least_nodes_) {
    WaitForMore(NumberText(nodes, least_nodes_, "node"), now);
  } else if (MayForm(ready, now) && (!may_be_rank_0_ || may_be_rank_0_(ready[0]))) {
    Form(std::move(ready), now);
  }
}

void Membership::WaitForMore(const std::string& number, absl::Time now) {
  const absl::Time until = regroups_since_ + limits_.wait_for_ranks;
  LookAt(until);
  const std::string start = memory_.failed_start.empty() ? "" : absl::StrCat("; at its start, ", memory_.failed_start);
  const std::string reason = Reason(), before = absl::StrCat(start, reason.empty() ? "" : "; before, ", reason);
  if (!SomebodyComes() && (!more_may_come_ || memory_.finished_members > 0)) {
    verdict_ = absl::FailedPreconditionError(absl::StrCat(number, ", and no other one comes", before));
  } else if (now >= until) {
    verdict_ = absl::DeadlineExceededError(
        absl::StrCat(number, " after ", absl::FormatDuration(limits_.wait_for_ranks), before));
  } else if (!SomebodyComes()) {
    awaited_ = absl::StrCat(number, "; the ranks wait for others, for ", absl::FormatDuration(limits_.wait_for_ranks),
                            " at most", before);
  }
}

// The first generation has a rank in every place.
void Membership::WaitForAll(size_t ready, absl::Time now) {
  if (SomebodyComes()) return;
  int ranks = 0;
  for (const Memory::Node& node : memory_.nodes) ranks += node.gone ? 0 : node.ranks;
  WaitForMore(NumberText(static_cast<int>(ready), ranks, "rank"), now);
}

// The slot's place on its node, or the lowest one that no process of the node has.
int Membership::FreeLocalRank(int slot) const {
  const Memory::Node& node = memory_.nodes[memory_.slots[slot].node];
  std::vector<bool> taken(node.ranks + 1);
  for (int i = node.first; i < node.first + node.slots; ++i) {
    if (local_rank(i) >= 0) taken[local_rank(i)] = true;
  }
  const int wished = slot - node.first;
  if (wished < node.ranks && !taken[wished]) return wished;
  return static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

void Membership::Form(std::vector<int> ready, absl::Time now) {
  for (Slot& slot : memory_.slots) {
    slot.rank = -1;
    slot.owes = false;  // the new generation does what was to be done
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    Slot& slot = memory_.slots[ready[i]];
    slot.state = State::kMember;
    slot.rank = static_cast<int>(i);
    if (slot.local_rank < 0) slot.local_rank = FreeLocalRank(ready[i]);
  }
  ++memory_.generation;
  if (!std::exchange(memory_.formed, true)) policy_.reset();  // all have asked now
  memory_.phase = Phase::kRunning;
  formed_at_ = now;
  memory_.progressed = memory_.changes = memory_.agreed = memory_.resumes = false;
  kill_at_ = absl::InfiniteFuture();
  memory_.members = ready;
  Decide(Decision::Kind::kForm, std::move(ready), Reason());
  memory_.reason.clear();
  memory_.failed_start.clear();
  memory_.causes.clear();
  memory_.failures = 0;
}

}  // namespace lockstep::launch::internal
