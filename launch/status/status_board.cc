#include "lockstep/launch/status/status_board.h"

#include <utility>

#include "absl/time/time.h"

namespace lockstep::launch {

using State = RankStatus::State;

namespace {

// Ranks say every 10 s that they wait.
constexpr absl::Duration kStallIsFresh = absl::Seconds(15);

}  // namespace

StatusBoard::StatusBoard(JobStatus job, std::function<int64_t()> clock)
    : job_(std::move(job)), clock_(std::move(clock)), started_ns_(clock_()), phase_since_ns_(started_ns_) {}

void StatusBoard::OnPhase(JobStatus::Phase phase) {
  if (phase == job_.phase) return;
  job_.phase = phase;
  phase_since_ns_ = clock_();
}

void StatusBoard::OnLimits(int min_nodes, int max_nodes) {
  job_.min_nodes = min_nodes;
  job_.max_nodes = max_nodes;
}

void StatusBoard::OnGeneration(const NodeStart& start, int ranks, int spares) {
  job_.phase = JobStatus::Phase::kRunning;
  phase_since_ns_ = clock_();
  job_.generation = start.number;
  job_.restarts = start.restarts;
  ranks_.assign(ranks + spares, Rank());
  stall_.clear();
  for (int i = 0; i < ranks + spares; ++i) {
    ranks_[i].status.local_rank = i;
    ranks_[i].status.rank = i < ranks ? start.first_rank + i : -1;
    ranks_[i].since_ns = phase_since_ns_;
  }
}

void StatusBoard::OnRegroup(int64_t generation, int restarts, const std::vector<int>& ranks) {
  job_.generation = generation;
  job_.restarts = restarts;
  stall_.clear();
  for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].status.rank = i < ranks.size() ? ranks[i] : -1;
}

void StatusBoard::OnSpare(int64_t generation, int restarts) {
  OnPhase(JobStatus::Phase::kSpare);
  job_.generation = generation;
  job_.restarts = restarts;
  ranks_.clear();
}

StatusBoard::Rank* StatusBoard::Find(int local_rank) {
  return local_rank >= 0 && local_rank < static_cast<int>(ranks_.size()) ? &ranks_[local_rank] : nullptr;
}

void StatusBoard::SetState(int local_rank, State state) {
  Rank* rank = Find(local_rank);
  if (!rank || rank->status.state == state || rank->status.state == State::kEnded) return;
  rank->status.state = state;
  rank->since_ns = clock_();
}

void StatusBoard::OnStart(const RankFailure& rank) {
  if (Rank* found = Find(rank.local_rank)) {
    const int known_rank = found->status.rank;
    *found = Rank();  // a process before this one may have ended
    found->status.local_rank = rank.local_rank;
    found->status.rank = known_rank;
    found->status.pid = rank.pid;
  }
  SetState(rank.local_rank, State::kRunning);
}

void StatusBoard::OnEnd(const RankFailure& rank) {
  SetState(rank.local_rank, State::kEnded);
  if (Rank* found = Find(rank.local_rank)) {
    found->status.exit_code = rank.exit_code;
    found->status.signal = rank.signal;
  }
}

void StatusBoard::OnWaiting(int local_rank, bool waiting) {
  SetState(local_rank, waiting ? State::kWaiting : State::kRunning);
}

void StatusBoard::OnStep(int local_rank, int64_t step, int64_t now_ns) {
  if (Rank* rank = Find(local_rank)) rank->rate.Record(step, now_ns);
}

void StatusBoard::OnStall(const std::string& why) {
  stall_ = why;
  stall_ns_ = clock_();
}

JobStatus StatusBoard::Status() const {
  const int64_t now_ns = clock_();
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

}  // namespace lockstep::launch
