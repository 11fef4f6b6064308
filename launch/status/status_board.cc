#include "lockstep/tools/launch/status/internal/status_board.h"

#include <utility>

#include "absl/time/time.h"

namespace lockstep::launch::internal {

using State = RankStatus::State;

namespace {

// Ranks say every 10 s that they wait.
constexpr absl::Duration kStallIsFresh = absl::Seconds(15);

}  // namespace

StatusBoard::StatusBoard(JobStatus job, int64_t now_ns)
    : job_(std::move(job)), started_ns_(now_ns), phase_since_ns_(now_ns) {}

void StatusBoard::NotePhase(JobStatus::Phase phase, int64_t now_ns) {
  if (phase == job_.phase) return;
  job_.phase = phase;
  phase_since_ns_ = now_ns;
}

void StatusBoard::NoteGeneration(const Generation& generation, int ranks, int spares, int64_t now_ns) {
  job_.phase = JobStatus::Phase::kRunning;
  phase_since_ns_ = now_ns;
  job_.generation = generation.number;
  job_.restarts = generation.restarts;
  ranks_.assign(ranks + spares, Rank());
  stall_.clear();
  for (int i = 0; i < ranks + spares; ++i) {
    ranks_[i].status.local_rank = i;
    ranks_[i].status.rank = i < ranks ? generation.first_rank + i : -1;
    ranks_[i].since_ns = now_ns;
  }
}

void StatusBoard::NoteRegroup(int64_t generation, int restarts, const std::vector<int>& ranks) {
  job_.generation = generation;
  job_.restarts = restarts;
  stall_.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].status.rank = i < ranks.size() ? ranks[i] : -1;
}

void StatusBoard::NoteSpare(int64_t generation, int restarts, int64_t now_ns) {
  NotePhase(JobStatus::Phase::kSpare, now_ns);
  job_.generation = generation;
  job_.restarts = restarts;
  ranks_.clear();
}

StatusBoard::Rank* StatusBoard::Find(int local_rank) {
  return local_rank >= 0 && local_rank < static_cast<int>(ranks_.size()) ? &ranks_[local_rank] : nullptr;
}

void StatusBoard::SetState(int local_rank, State state, int64_t now_ns) {
  Rank* rank = Find(local_rank);
  if (!rank || rank->status.state == state || rank->status.state == State::kEnded) return;
  rank->status.state = state;
  rank->since_ns = now_ns;
}

void StatusBoard::NoteStart(const RankFailure& rank, int64_t now_ns) {
  if (Rank* found = Find(rank.local_rank)) {
    const int known_rank = found->status.rank;
    *found = Rank();  // a process before this one may have ended
    found->status.local_rank = rank.local_rank;
    found->status.rank = known_rank;
    found->status.pid = rank.pid;
  }
  SetState(rank.local_rank, State::kRunning, now_ns);
}

void StatusBoard::NoteEnd(const RankFailure& rank, int64_t now_ns) {
  SetState(rank.local_rank, State::kEnded, now_ns);
  if (Rank* found = Find(rank.local_rank)) {
    found->status.exit_code = rank.exit_code;
    found->status.signal = rank.signal;
  }
}

void StatusBoard::NoteWaiting(int local_rank, bool waiting, int64_t now_ns) {
  SetState(local_rank, waiting ? State::kWaiting : State::kRunning, now_ns);
}

void StatusBoard::NoteStep(int local_rank, int64_t step, int64_t now_ns) {
  if (Rank* rank = Find(local_rank)) rank->rate.Note(step, now_ns);
}

void StatusBoard::NoteStall(const std::string& why, int64_t now_ns) {
  stall_ = why;
  stall_ns_ = now_ns;
}

JobStatus StatusBoard::Status(int64_t now_ns) const {
  JobStatus status = job_;
  if (status.phase != JobStatus::Phase::kForming) status.ready.reset();
  status.running = absl::Nanoseconds(now_ns - started_ns_);
  status.in_phase = absl::Nanoseconds(now_ns - phase_since_ns_);
  if (absl::Nanoseconds(now_ns - stall_ns_) <= kStallIsFresh) status.stall = stall_;
  for (const Rank& rank : ranks_) {
    status.ranks.push_back(rank.status);
    RankStatus& shown = status.ranks.back();
    shown.in_state = absl::Nanoseconds(now_ns - rank.since_ns);
    shown.step = rank.rate.step();
    shown.since_step = rank.rate.Age(now_ns);
    if (rank.rate.IsSince(stall_ns_)) status.stall.clear();
    if (shown.state == State::kRunning) shown.steps_per_second = rank.rate.PerSecond(now_ns);
  }
  return status;
}

}  // namespace lockstep::launch::internal
