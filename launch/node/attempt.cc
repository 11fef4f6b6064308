#include "lockstep/launch/node/attempt.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/process/group_members.h"
#include "lockstep/launch/process/process_state.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {
namespace {

// How long the real cause may lag behind the first failure seen. Gloo reports a dead peer in 3 ms.
constexpr absl::Duration kSettle = absl::Milliseconds(100);
// The real cause may lag so far behind if every failure so far is a consequence. A failed group's destructor takes up
// to 1 s, then the rank ends.
constexpr absl::Duration kTruerCauseWait = absl::Seconds(5);
// Most ranks end within this time after the signal. Then one line at the end is enough.
constexpr absl::Duration kQuietEnd = absl::Seconds(1);
// How often a rank is looked at during LaunchOptions::stopped_patience.
constexpr int kStoppedLooks = 10;
// How long a reader may take for the rest of the output after a signal has ended the launch.
constexpr absl::Duration kLastWords = absl::Seconds(1);
// A process that SIGKILL does not end is stuck in the kernel. The launcher reports that instead of waiting for it.
constexpr absl::Duration kKillWait = absl::Seconds(10);
// After which a notice says that the spares are not started, since no rank has asked for a generation.
constexpr absl::Duration kLongWithoutAsking = absl::Seconds(30);

}  // namespace

// Returns whether the ranks have yet to end by themselves. Ranks that stay end when the job says so.
bool Attempt::IsAwaited() const {
  return broken_.ok() && stop_signal_ == 0 && !must_end_ &&
         (Running() || rank_links_.stays() || !early_deaths_.empty());
}

// Returns whether another rank may show the real cause. The only node of a job waits for it also if the job must end.
bool Attempt::MayLearnMore(int64_t deadline) const {
  const bool is_told = must_end_ && control_.nodes != RankLinks::Nodes::kOne;
  return broken_.ok() && stop_signal_ == 0 && !is_told && (Running() || !early_deaths_.empty()) &&
         MonotonicNanos() < deadline;
}

// Returns when all ranks have ended, when one has failed and the real cause has had time to show, or when a signal
// arrived.
void Attempt::WaitForVerdict() {
  while (IsAwaited() && !FirstCause(outcomes_)) {
    // No event tells that a rank has been stopped.
    const int64_t look = HasEndedRank() ? After(options_.stopped_patience / kStoppedLooks) : kNever;
    WaitForEvent(std::min(
        {look, rank_links_.next_look(), control_.next_look(), tell_at_, unasked_at_, early_deaths_.next_look()}));
    TakeEarlyDeaths();
    if (MonotonicNanos() >= look) LookForStopped();
    DoActions();
    if (MonotonicNanos() >= tell_at_) ReportWhoIsAwaited();
    if (MonotonicNanos() >= unasked_at_) ReportUnasked();
  }
  const Outcome* cause = FirstCause(outcomes_);
  if (!cause || IsCertain(*cause)) return;
  const int64_t settled = After(kSettle), last = After(kTruerCauseWait);
  while (MayLearnMore(settled)) WaitForEvent(settled);
  while (MayLearnMore(last) && TruerCauseMayCome(outcomes_)) WaitForEvent(last);
}

AttemptResult Attempt::Run(int earlier_port) {
  watcher_.OnGeneration(start_, options_.nproc_per_node, options_.spares);
  absl::Status started = StartAll(earlier_port);
  if (started.ok()) WaitForVerdict();
  if (started.ok()) started = broken_;
  const Outcome* cause = FirstCause(outcomes_);
  // A scheduler that ends a job signals both launcher and ranks.
  const bool stopped = stop_signal_ != 0 && (!cause || cause->end.signal == stop_signal_);
  if (stop_signal_ != 0) control_.on_signal(stop_signal_);
  if (cause) control_.on_failing();
  if (stopped) {
    EndGroups(stop_signal_, options_.grace, nullptr);
  } else {
    EndGroups(SIGTERM, options_.failure_grace.value_or(options_.grace), cause);
  }
  FinishOutput();
  processes_.Reap();
  if (started.ok() && unasked_at_ != kNever) ReportUnasked();
  return Result(started, stopped);
}

absl::Status Attempt::StartAll(int earlier_port) {
  LOCKSTEP_RETURN_IF_ERROR(processes_.Open());
  LOCKSTEP_ASSIGN_OR_RETURN(starter_, RankStarter::Create(argv_, options_, start_, earlier_port));
  master_port_ = starter_->master_port();
  rank_links_.SetMaster(starter_->master_addr(), master_port_);
  rank_links_.Apply(control_.ranks());
  for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(StartRank(local_rank));
  }
  if (options_.spares > 0) unasked_at_ = After(kLongWithoutAsking);
  return absl::OkStatus();
}

absl::Status Attempt::StartRank(int local_rank) {
  RankProcesses::Rank rank;
  rank.attempt = number();
  LOCKSTEP_ASSIGN_OR_RETURN(rank.report, CreateReportFile());
  LOCKSTEP_ASSIGN_OR_RETURN(const RankOutput output, output_.Open(rank.attempt, local_rank));
  LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd link, rank_links_.Open(local_rank));
  rank.started_ns = MonotonicNanos();
  const RankStarter::Ends ends = {rank.report, link, output, rank_links_.plan().restarts};
  LOCKSTEP_ASSIGN_OR_RETURN(rank.process, starter_->Start(local_rank, ends));
  Outcome outcome;
  outcome.end.local_rank = local_rank;
  const bool has_rank = !rank_links_.plan().formed && local_rank < options_.nproc_per_node;
  outcome.end.rank = has_rank ? start_.first_rank + local_rank : -1;
  outcome.end.pid = rank.process.pid;
  const int attempt = rank.attempt;
  LOCKSTEP_RETURN_IF_ERROR(processes_.Add(local_rank, std::move(rank)));
  events_.RankStarted(attempt, outcome.end);
  watcher_.OnStart(outcome.end);
  outcomes_.resize(processes_.size());
  outcomes_[local_rank] = std::move(outcome);
  return absl::OkStatus();
}

bool Attempt::HasEndedRank() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(), [](const Outcome& o) { return o.ended; });
}

// Counts looks instead of time, since this process may have been stopped too.
void Attempt::LookForStopped() {
  const bool all_stopped =
      std::all_of(outcomes_.begin(), outcomes_.end(), [](const Outcome& o) { return o.ended || IsStopped(o.end.pid); });
  stopped_looks_ = all_stopped ? stopped_looks_ + 1 : 0;
  if (stopped_looks_ < kStoppedLooks) return;
  for (Outcome& outcome : outcomes_) {
    if (outcome.ended) continue;
    outcome.failed = outcome.reported_before = true;
    outcome.time_ns = MonotonicNanos();
    outcome.code = absl::StatusCode::kDeadlineExceeded;
    outcome.end.message =
        absl::StrCat("it was stopped, as by SIGSTOP, for ", absl::FormatDuration(options_.stopped_patience),
                     " after the other ranks had ended");
  }
}

bool Attempt::Running() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(), [](const Outcome& o) { return !o.ended; });
}

// Returns when a rank or a stray has ended, a signal has come, or at the deadline. Meanwhile it serves the output and
// the people who ask.
void Attempt::WaitForEvent(int64_t deadline) {
  std::vector<pollfd> fds;
  size_t links = 0;
  do {
    fds = {{relay_.fd(), POLLIN, 0}};
    processes_.AppendTo(&fds);
    if (!must_end_) fds.push_back({control_.fd, POLLIN, 0});
    links = fds.size();
    rank_links_.AppendTo(&fds);
    const size_t others = fds.size();
    fds.push_back({watcher_.fd(), POLLIN, 0});
    output_.AppendTo(&fds);
    if (poll(fds.data(), fds.size(), PollTimeout(deadline)) <= 0) break;
    if (fds[others].revents != 0) watcher_.Serve();
    output_.Serve(fds.data() + others + 1);
    fds.resize(others);
  } while (MonotonicNanos() < deadline &&
           std::all_of(fds.begin(), fds.end(), [](const pollfd& fd) { return fd.revents == 0; }));
  TakeSignals();
  RecordEnds();
  rank_links_.Serve(fds.data() + links);
  AskControl();
}

void Attempt::AskControl() {
  if (must_end_) return;
  must_end_ = control_.must_end();
  // The only node of a job also says what was decided last, such as that a process is not started again.
  if (!must_end_ || control_.nodes == RankLinks::Nodes::kOne) rank_links_.Apply(control_.ranks());
}

void Attempt::TakeSignals() {
  while (const int signal = relay_.Take()) RecordSignal(signal);
}

// The ranks have ended. A signal ends the wait for a reader that does not read.
void Attempt::FinishOutput() {
  output_.StopAtWhatIsThere();
  const int64_t deadline = stop_signal_ != 0 ? After(kLastWords) : kNever;
  const int signals_seen = signals_seen_;
  for (;;) {
    if (signals_seen_ > signals_seen || MonotonicNanos() >= deadline) output_.DiscardConsoles();
    if (output_.idle()) return;
    std::vector<pollfd> fds = {{relay_.fd(), POLLIN, 0}, {watcher_.fd(), POLLIN, 0}};
    output_.AppendTo(&fds);
    if (poll(fds.data(), fds.size(), PollTimeout(deadline)) <= 0) continue;
    if (fds[1].revents != 0) watcher_.Serve();
    output_.Serve(fds.data() + 2);
    TakeSignals();
  }
}

void Attempt::RecordEnds() {
  for (const int slot : processes_.TakeEnds()) RecordEnd(slot);
}

void Attempt::RecordSignal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    processes_.Signal(signal);
  } else if (signals_seen_++ == 0) {
    stop_signal_ = signal;
  }
}

bool Attempt::HoldsEarlyDeath(int i, const Failure& failure) {
  if (!failure.killed || rank_links_.stays() || !rank_links_.may_stay()) return false;
  if (!may_stay_) may_stay_ = starter_->MayStay();
  return *may_stay_ &&
         early_deaths_.Hold(i, failure, outcomes_[i].time_ns - processes_[i].started_ns, MonotonicNanos());
}

void Attempt::TakeEarlyDeaths() {
  const bool others_run = (Running() || control_.nodes == RankLinks::Nodes::kAgents) && !FirstCause(outcomes_);
  for (const auto& [slot, failure] : early_deaths_.Take(rank_links_.stays(), others_run, MonotonicNanos())) {
    DecideAbout(slot, failure);
  }
}

// The process of a slot has ended. Do the others go on?
void Attempt::DecideAbout(int slot, const Failure& failure) {
  bool goes_on = rank_links_.OnEnd(slot, failure);
  NotifyControl();
  if (control_.nodes == RankLinks::Nodes::kOne && must_end_) goes_on &= rank_links_.complete();
  outcomes_[slot].others_go_on = !failure.status.ok() && goes_on;
  const bool is_early = rank_links_.may_stay() && !rank_links_.plan().formed;
  if (!outcomes_[slot].others_go_on || !is_early || !options_.on_notice) return;
  options_.on_notice(
      absl::StrCat(failure.status.message(), " before all ranks had joined; another process takes its place"));
}

void Attempt::EndGroups(int signal, absl::Duration grace, const Outcome* cause) {
  watcher_.OnPhase(JobStatus::Phase::kEnding);
  RecordEnds();
  for (Outcome& outcome : outcomes_) outcome.told_to_end = !outcome.ended;
  told_to_end_ns_ = MonotonicNanos();
  const int64_t deadline = After(grace);
  // The first signal says what the ranks have been told already. A second one means that there is no time.
  const int signals_seen = std::max(signals_seen_, 1);
  processes_.SignalAll(signal);
  KillStopped();
  const bool announces = cause && options_.on_failure && grace > kQuietEnd;
  if (WaitUntilGone(announces ? After(kQuietEnd) : deadline, signals_seen)) return;
  if (announces) {
    if (Running() && signals_seen_ <= signals_seen) options_.on_failure(EarlyFailureStatus(*cause, outcomes_, grace));
    if (WaitUntilGone(deadline, signals_seen)) return;
  }
  patience_ = absl::Trunc(absl::Nanoseconds(MonotonicNanos() - told_to_end_ns_), absl::Milliseconds(10));
  for (Outcome& outcome : outcomes_) outcome.needed_kill |= !outcome.ended;
  processes_.Kill();
  if (!WaitUntilGone(After(kKillWait), std::numeric_limits<int>::max())) RecordWhatOutlived();
}

void Attempt::RecordWhatOutlived() {
  for (Outcome& outcome : outcomes_) {
    outcome.outlived_kill = !outcome.ended;
    const std::optional<ProcessState> process = ReadProcessState(outcome.end.pid);
    if (process) outcome.process_state = process->state;
  }
  not_ended_ = processes_.NotEnded();
}

// A stopped process would handle its signal only after a SIGCONT.
void Attempt::KillStopped() {
  for (const pid_t pid : processes_.Stopped()) {
    for (Outcome& outcome : outcomes_) {
      if (outcome.end.pid == pid) outcome.stopped = outcome.needed_kill = true;
    }
    kill(pid, SIGKILL);
  }
}

// Returns whether every rank and all they have started ended before the deadline and before more than `signals_allowed`
// signals came.
bool Attempt::WaitUntilGone(int64_t deadline, int signals_allowed) {
  do {
    while (Running() || processes_.waits()) {
      if (MonotonicNanos() >= deadline || signals_seen_ > signals_allowed) return false;
      WaitForEvent(deadline);
      processes_.SignalOrphans();
    }
  } while (!processes_.AreGone());
  return true;
}

}  // namespace lockstep::launch
