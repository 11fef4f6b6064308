#include "lockstep/tools/launch/internal/attempt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/agent_link/agent_link.h"
#include "lockstep/tools/launch/internal/deadline.h"
#include "lockstep/tools/launch/internal/group_members.h"
#include "lockstep/tools/launch/internal/job_cgroup.h"
#include "lockstep/tools/launch/internal/last_lines.h"
#include "lockstep/tools/launch/internal/process_state.h"
#include "lockstep/tools/launch/internal/report_file.h"
#include "lockstep/tools/launch/internal/strays.h"

namespace lockstep::launch::internal {
namespace {

// How long the real cause may lag behind the first failure seen. Gloo reports a dead peer in 3 ms.
constexpr absl::Duration kSettle = absl::Milliseconds(100);
// The same if every failure so far is a consequence. A failed group's destructor takes up to 1 s, then the rank ends.
constexpr absl::Duration kTruerCauseWait = absl::Seconds(5);
// Most ranks end within this time after the signal. Then one line at the end is enough.
constexpr absl::Duration kQuietEnd = absl::Seconds(1);
// How often a rank is looked at during LaunchOptions::stopped_patience.
constexpr int kStoppedLooks = 10;
// How long a reader may take for the rest of the output after a signal has ended the launch.
constexpr absl::Duration kLastWords = absl::Seconds(1);
// A process that SIGKILL does not end is stuck in the kernel. The launcher reports that instead of waiting for it.
constexpr absl::Duration kKillWait = absl::Seconds(10);
// After which a notice says which ranks have not left a broken generation, and how many of them it names.
constexpr absl::Duration kLongLeave = absl::Seconds(5);
constexpr size_t kMostNames = 4;
// After which a notice says that the spares are not started, since no rank has asked for a generation.
constexpr absl::Duration kLongWithoutAsking = absl::Seconds(30);
constexpr char kEndedEarly[] = "it ended before its work did";

// Errors with these codes mean that a peer was gone or did not answer, most likely another rank.
bool IsAboutOthers(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

// Whether the ranks have yet to end by themselves.
bool Attempt::WillEnd() const {
  return broken_.ok() && !regrouper_.finished() && (Running() || regrouper_.goes_on() || !early_deaths_.empty());
}

bool Attempt::MayLearnMore(int64_t deadline) const {
  return WillEnd() && stop_signal_ == 0 && !must_end_ && MonotonicNanos() < deadline;
}

// Returns when all ranks have ended, when one has failed and the real cause has had time to show, or when a signal
// arrived.
void Attempt::WaitForVerdict() {
  while (MayLearnMore(kNever) && !FirstCause(outcomes_)) {
    // No event tells that a rank has been stopped.
    const int64_t look = HasEndedRank() ? After(options_.stopped_patience / kStoppedLooks) : kNever;
    WaitForEvent(std::min({look, regrouper_.next_look(), tell_at_, unasked_at_, early_deaths_.next_look()}));
    TakeEarlyDeaths();
    if (MonotonicNanos() >= look) LookForStopped();
    Regroup();
    if (MonotonicNanos() >= tell_at_) TellWhoIsAwaited();
    if (MonotonicNanos() >= unasked_at_) TellUnasked();
  }
  const Outcome* cause = FirstCause(outcomes_);
  if (!cause || IsCertain(*cause)) return;
  const int64_t settled = After(kSettle), last = After(kTruerCauseWait);
  while (MayLearnMore(settled)) WaitForEvent(settled);
  while (MayLearnMore(last) && TruerCauseMayCome(outcomes_)) WaitForEvent(last);
}

AttemptResult Attempt::Run(int earlier_port) {
  watcher_.NoteGeneration(generation_, options_.nproc_per_node, options_.spares);
  absl::Status started = StartAll(earlier_port);
  if (started.ok()) WaitForVerdict();
  if (started.ok()) started = broken_;
  const Outcome* cause = FirstCause(outcomes_);
  // A scheduler that ends a job signals both launcher and ranks.
  const bool stopped = stop_signal_ != 0 && (!cause || cause->end.signal == stop_signal_);
  if (control_ && stop_signal_ != 0) control_->on_signal(stop_signal_);
  if (cause && control_) control_->on_failing();
  if (stopped) {
    EndGroups(stop_signal_, options_.grace, nullptr);
  } else {
    EndGroups(SIGTERM, options_.failure_grace.value_or(options_.grace), cause);
  }
  FinishOutput();
  Reap();
  if (started.ok() && unasked_at_ != kNever) TellUnasked();
  return Result(started, stopped);
}

AttemptEnd Attempt::End(bool started) const {
  if (stop_signal_ != 0) return AttemptEnd::kSignalled;
  if (regrouper_.formed() || !regrouper_.ending().empty()) return AttemptEnd::kExhausted;
  return started ? AttemptEnd::kFailed : AttemptEnd::kNotStarted;
}

AttemptResult Attempt::Result(const absl::Status& started, bool stopped) const {
  AttemptResult result;
  result.master_port = master_port_;
  result.must_end = must_end_;
  result.signal = stop_signal_;
  result.status = started.ok() ? Verdict(stopped) : started;
  NameStraysThatOutlived(&result.status);
  if (stop_signal_ != 0 && !stopped && options_.max_restarts > 0) {
    result.status = WithEnding(result.status, absl::StrCat("; then the launcher received signal ", stop_signal_, " (",
                                                           SignalName(stop_signal_), ")"));
  }
  if (result.status.ok()) result.resumable = Resumable();
  result.end = End(started.ok());
  if (const Outcome* cause = FirstCause(outcomes_)) {
    result.consequence = cause->consequence;
    result.killed = WasKilled(*cause);
    result.failed_ns = cause->time_ns;
  }
  return result;
}

// OK if all ranks succeeded.
absl::Status Attempt::Resumable() const {
  for (const Outcome& outcome : outcomes_) {
    if (!outcome.resumable) continue;
    const std::vector<Outcome> alone = {outcome};
    const std::string& start = regrouper_.failed_start();
    return WithEnding(FailureStatus(alone[0], alone, absl::ZeroDuration()),
                      absl::StrCat(start.empty() ? "" : "; at its start, ", start, "; the job can be started again"));
  }
  return absl::OkStatus();
}

absl::Status Attempt::Verdict(bool stopped) const {
  if (stopped) return StoppedStatus(stop_signal_, outcomes_, patience_);
  // A rank may have reported its own error, but not have ended when the launcher's signal came.
  const Outcome* cause = FirstCause(outcomes_);
  if (!cause) return LateFailure();
  absl::Status status = WithEnding(FailureStatus(*cause, outcomes_, patience_), regrouper_.ending());
  const std::string stderr_file = output_.StderrPath(cause->end.local_rank);
  if (!stderr_file.empty()) AddStderr(stderr_file, LastLinesOfFile(stderr_file), &status);
  return status;
}

// Of a job whose work is done, and whose ranks have all ended.
absl::Status Attempt::LateFailure() const {
  if (control_ || !regrouper_.complete()) return absl::OkStatus();
  if (!late_failure_.ok()) return WithEnding(late_failure_, kAfterWork);
  if (!late_kills_.empty() && options_.on_notice) {
    options_.on_notice(absl::StrCat(absl::StrJoin(late_kills_, "; "), kAfterWork));
  }
  return absl::OkStatus();
}

absl::Status Attempt::StartAll(int earlier_port) {
  ends_ = AboveStdio(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  if (!ends_.valid()) return absl::ResourceExhaustedError(absl::StrCat("launch: no epoll: ", strerror(errno)));
  LOCKSTEP_ASSIGN_OR_RETURN(starter_, RankStarter::Create(argv_, options_, generation_, earlier_port));
  master_port_ = starter_->master_port();
  regrouper_.SetMaster(starter_->master_addr(), master_port_);
  if (control_) regrouper_.Obey(control_->ranks());
  for (int local_rank = 0; local_rank < options_.nproc_per_node; ++local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(StartRank(local_rank));
  }
  if (options_.spares > 0) unasked_at_ = After(kLongWithoutAsking);
  return absl::OkStatus();
}

// A program that does not ask for a generation would take a spare for a rank.
void Attempt::StartSpares() {
  if (!regrouper_.asked() || static_cast<int>(ranks_.size()) > options_.nproc_per_node) return;
  unasked_at_ = kNever;
  for (int i = 0; i < options_.spares && broken_.ok(); ++i) broken_.Update(StartRank(options_.nproc_per_node + i));
}

void Attempt::TellUnasked() {
  unasked_at_ = kNever;
  if (!options_.on_notice) return;
  options_.on_notice("no rank has asked for a generation (tools/launch/agent_link), so no spare is started");
}

// The first process of a local rank adds to `ranks_`, another one takes the place of the one before.
absl::Status Attempt::StartRank(int local_rank) {
  Rank rank;
  rank.attempt = number();
  LOCKSTEP_ASSIGN_OR_RETURN(rank.report, CreateReportFile());
  LOCKSTEP_ASSIGN_OR_RETURN(const RankOutput output, output_.Open(rank.attempt, local_rank));
  LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd link, regrouper_.Open(local_rank));
  rank.started_ns = MonotonicNanos();
  const RankStarter::Ends ends = {rank.report, link, output, regrouper_.restarts()};
  LOCKSTEP_ASSIGN_OR_RETURN(rank.process, starter_->Start(local_rank, ends));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = local_rank;
  epoll_ctl(ends_.get(), EPOLL_CTL_ADD, rank.process.pidfd.get(), &event);
  Outcome outcome;
  outcome.end.local_rank = local_rank;
  const bool has_rank = !regrouper_.formed() && local_rank < options_.nproc_per_node;
  outcome.end.rank = has_rank ? generation_.first_rank + local_rank : -1;
  outcome.end.pid = rank.process.pid;
  events_.RankStarted(rank.attempt, outcome.end);
  watcher_.NoteStart(outcome.end);
  ranks_.resize(std::max<size_t>(ranks_.size(), local_rank + 1));
  outcomes_.resize(ranks_.size());
  outcomes_[local_rank] = std::move(outcome);
  ranks_[local_rank] = std::move(rank);
  return absl::OkStatus();
}

// What the process before left in its group ends first.
absl::Status Attempt::StartRankAgain(int local_rank) {
  Rank& before = ranks_[local_rank];
  if (!before.gone) {
    kill(-before.process.pid, SIGKILL);
    waitpid(before.process.pid, nullptr, WNOHANG);
    before.gone = true;
  }
  events_.Restart(number(), FailureOf(outcomes_[local_rank]).status.message(), absl::ZeroDuration());
  return StartRank(local_rank);
}

// A process that cannot be started counts as one that failed at its start.
void Attempt::ReplaceRank(int local_rank) {
  const absl::Status started = StartRankAgain(local_rank);
  if (started.ok()) return;
  NodeFailure failure;
  failure.status = started;
  failure.time_ns = MonotonicNanos();
  if (!regrouper_.OnEnd(local_rank, failure)) broken_.Update(started);
}

// Decides about ranks that stay when another one fails, and carries it out. A process that cannot be started makes
// another decision due.
void Attempt::Regroup() {
  StartSpares();
  for (;;) {
    regrouper_.Update();
    if (const std::optional<int> slot = regrouper_.TakeStalled()) EndStalled(*slot);
    broken_.Update(regrouper_.status());
    const std::vector<Membership::Decision> decisions = regrouper_.Take();
    for (const Membership::Decision& decision : decisions) Carry(decision);
    if (decisions.empty()) break;
  }
  if (control_ && regrouper_.TakeChange()) control_->on_slots(regrouper_.slots(), regrouper_.port());
}

void Attempt::Carry(const Membership::Decision& decision) {
  if (decision.kind == Membership::Decision::Kind::kForm) NoteGeneration(decision);
  if (decision.kind == Membership::Decision::Kind::kNow) NoteLeaving(decision);
  for (const int slot : decision.slots) {
    if (decision.kind == Membership::Decision::Kind::kStart) ReplaceRank(slot);
    if (decision.kind == Membership::Decision::Kind::kKill && !outcomes_[slot].ended) {
      if (options_.on_notice) {
        options_.on_notice(
            absl::StrCat(NameOf(slot), " has not left generation ", regrouper_.generation(), " in time and is killed"));
      }
      // elastic::World reads these words.
      outcomes_[slot].end.message = absl::StrCat("it had not left generation ", regrouper_.generation(), " in time");
      outcomes_[slot].did_not_leave = true;
      kill(-outcomes_[slot].end.pid, SIGKILL);
    }
  }
  if (decision.kind == Membership::Decision::Kind::kGiveUp && options_.on_notice) {
    options_.on_notice(
        absl::StrCat(decision.reason, "; local rank ", decision.slots[0],
                     " is not started again, since five of its processes in succession have not joined"));
  }
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
  return absl::StrCat("rank ", regrouper_.rank(slot), " (local rank ", slot, ", pid ", pid,
                      IsStopped(pid) ? ", stopped)" : ")");
}

void Attempt::NoteLeaving(const Membership::Decision& decision) {
  if (tell_at_ != kNever) return;
  leaving_because_ = decision.reason;
  tell_at_ = After(kLongLeave);
}

// The ranks that are left wait for members that take long to leave a broken generation.
void Attempt::TellWhoIsAwaited() {
  tell_at_ = kNever;
  std::vector<std::string> awaited;
  for (int slot = 0; slot < static_cast<int>(outcomes_.size()); ++slot) {
    if (!outcomes_[slot].ended && regrouper_.IsMember(slot)) awaited.push_back(NameOf(slot));
  }
  if (awaited.empty() || !options_.on_notice) return;
  const size_t others = awaited.size() - std::min(awaited.size(), kMostNames);
  awaited.resize(awaited.size() - others);
  options_.on_notice(absl::StrCat(leaving_because_, "; the next generation waits for ", absl::StrJoin(awaited, ", "),
                                  others > 0 ? absl::StrCat(" and ", others, " others") : ""));
}

void Attempt::NoteGeneration(const Membership::Decision& decision) {
  tell_at_ = kNever;
  late_failure_ = absl::OkStatus();
  late_kills_.clear();
  for (const int slot : decision.slots) outcomes_[slot].end.rank = regrouper_.rank(slot);
  const int64_t generation = regrouper_.generation();
  const int ranks = regrouper_.world_size();
  events_.Generation(generation, ranks, decision.reason);
  if (!options_.on_notice) return;
  const int others = options_.nproc_per_node - static_cast<int>(decision.slots.size());
  if (generation == 1 && others > 0) {
    options_.on_notice(absl::StrCat("the program takes ", ranks, ranks == 1 ? " rank" : " ranks", " at most; ", others,
                                    others == 1 ? " process waits" : " processes wait", " to take a rank's place"));
  }
  if (generation == 1) return;
  const std::string reason = decision.reason.empty() ? "" : absl::StrCat(decision.reason, "; ");
  options_.on_notice(absl::StrCat(reason, "generation ", generation, " has ", ranks, ranks == 1 ? " rank" : " ranks"));
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
    fds = {{relay_.fd(), POLLIN, 0}, {ends_.get(), POLLIN, 0}};
    for (const UniqueFd& stray : strays_) fds.push_back({stray.get(), POLLIN, 0});
    if (control_ && !must_end_) fds.push_back({control_->fd, POLLIN, 0});
    links = fds.size();
    regrouper_.AppendTo(&fds);
    const size_t others = fds.size();
    fds.push_back({watcher_.fd(), POLLIN, 0});
    output_.AppendTo(&fds);
    if (poll(fds.data(), fds.size(), PollTimeout(deadline)) <= 0) return;
    if (fds[others].revents != 0) watcher_.Serve();
    output_.Serve(fds.data() + others + 1);
    fds.resize(others);
  } while (MonotonicNanos() < deadline &&
           std::all_of(fds.begin(), fds.end(), [](const pollfd& fd) { return fd.revents == 0; }));
  TakeSignals();
  NoteEnds();
  regrouper_.Serve(fds.data() + links);
  AskControl();
  strays_.erase(std::remove_if(strays_.begin(), strays_.end(), HasEnded), strays_.end());
}

void Attempt::AskControl() {
  if (!control_ || must_end_) return;
  must_end_ = control_->must_end();
  if (!must_end_) regrouper_.Obey(control_->ranks());
}

void Attempt::TakeSignals() {
  while (const int signal = relay_.Take()) NoteSignal(signal);
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

// An epoll lists descriptors in the order in which they became ready. So if several ranks ended before this process
// checked, the one that ended first is noted first.
void Attempt::NoteEnds() {
  std::vector<epoll_event> events(ranks_.size());
  const int ready = events.empty() ? 0 : epoll_wait(ends_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const int rank = static_cast<int>(events[i].data.u64);
    epoll_ctl(ends_.get(), EPOLL_CTL_DEL, ranks_[rank].process.pidfd.get(), nullptr);
    NoteEnd(rank);
  }
}

void Attempt::NoteSignal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    SignalGroups(signal);
  } else if (signals_seen_++ == 0) {
    stop_signal_ = signal;
  }
}

// Does not reap the process: until it is reaped, the number of the rank's process group cannot be reused.
void Attempt::NoteEnd(int i) {
  Outcome& outcome = outcomes_[i];
  outcome.ended = true;
  outcome.time_ns = MonotonicNanos();
  siginfo_t info = {};
  if (waitid(P_PID, outcome.end.pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0) {
    outcome.end.message = "other code in the launching process took its exit code";
  } else if (info.si_code == CLD_EXITED) {
    outcome.end.exit_code = info.si_status;
  } else {
    outcome.end.signal = info.si_status;
  }
  const bool ended_early = regrouper_.EndedEarly(i);
  outcome.resumable = outcome.end.exit_code == kResumableExitCode && regrouper_.has_finished(i);
  outcome.failed = outcome.end.exit_code != 0 && !outcome.resumable;
  if (!outcome.failed && !outcome.told_to_end && ended_early) {
    outcome.failed = true;
    outcome.end.message = kEndedEarly;
  }
  NoteReport(i);
  if (outcome.failed) output_.WriteError(ranks_[i].attempt, outcome.end.local_rank, TorchErrorOf(ranks_[i].report));
  events_.RankEnded(ranks_[i].attempt, outcome, ranks_[i].started_ns);
  watcher_.NoteEnd(outcome.end);
  if (outcome.told_to_end) return;
  const NodeFailure failure = FailureOf(outcome);
  outcome.survived = HoldsEarlyDeath(i, failure);
  if (!outcome.survived) DecideAbout(i, failure);
}

bool Attempt::HoldsEarlyDeath(int i, const NodeFailure& failure) {
  if (!failure.killed || regrouper_.kept() || !regrouper_.may_be_kept()) return false;
  if (!may_stay_) may_stay_ = starter_->MayStay();
  return *may_stay_ && early_deaths_.Hold(i, failure, outcomes_[i].time_ns - ranks_[i].started_ns, MonotonicNanos());
}

void Attempt::TakeEarlyDeaths() {
  const bool others_run = (Running() || control_) && !FirstCause(outcomes_);  // perhaps on other nodes
  for (const auto& [slot, failure] : early_deaths_.Take(regrouper_.kept(), others_run, MonotonicNanos())) {
    DecideAbout(slot, failure);
  }
}

// The process of a slot has ended. Do the others go on?
void Attempt::DecideAbout(int slot, const NodeFailure& failure) {
  const bool goes_on = regrouper_.OnEnd(slot, failure);
  outcomes_[slot].survived = !failure.status.ok() && goes_on;
  if (outcomes_[slot].survived) NoteLateFailure(outcomes_[slot], failure);
  if (!outcomes_[slot].survived || regrouper_.formed() || !options_.on_notice) return;
  options_.on_notice(
      absl::StrCat(failure.status.message(), " before all ranks had joined; another process takes its place"));
}

void Attempt::NoteLateFailure(const Outcome& outcome, const NodeFailure& failure) {
  if (outcome.end.rank < 0) return;
  if (IsFromOutside(outcome.end.signal)) {
    late_kills_.emplace_back(failure.status.message());
  } else {
    late_failure_.Update(failure.status);
  }
}

// Of one process, while the others go on. OK if it succeeded.
NodeFailure Attempt::FailureOf(const Outcome& outcome) const {
  NodeFailure failure;
  if (!outcome.failed) return failure;
  const std::vector<Outcome> alone = {outcome};
  failure.status = FailureStatus(alone[0], alone, absl::ZeroDuration());
  const std::string stderr_file = output_.StderrPath(outcome.end.local_rank);
  if (control_ && !stderr_file.empty()) AddStderr(stderr_file, LastLinesOfFile(stderr_file), &failure.status);
  failure.consequence = outcome.consequence;
  failure.killed = WasKilled(outcome);
  failure.time_ns = outcome.time_ns;
  return failure;
}

void Attempt::NoteReport(int i) {
  Outcome& outcome = outcomes_[i];
  const std::optional<Report> report = ReadReport(ranks_[i].report);
  if (!report && !outcome.failed && options_.require_report) {
    outcome.failed = true;
    outcome.end.message = kEndedEarly;
  }
  outcome.consequence = outcome.failed && WasTold(ranks_[i].report);
  if (!report || !outcome.failed || report->code == absl::StatusCode::kOk) return;
  outcome.code = report->code;
  outcome.end.message = report->message;
  const int64_t said_ns = report->time_ns > 0 ? report->time_ns : outcome.time_ns;
  outcome.consequence = report->consequence || IsAboutOthers(report->code);
  outcome.reported_before = outcome.told_to_end && !outcome.consequence && said_ns < told_to_end_ns_;
  outcome.time_ns = std::min(outcome.time_ns, said_ns);
}

void Attempt::SignalGroups(int signal) {
  for (const pid_t group : Groups()) kill(-group, signal);
}

void Attempt::EndGroups(int signal, absl::Duration grace, const Outcome* cause) {
  watcher_.NotePhase(JobStatus::Phase::kEnding);
  NoteEnds();
  for (Outcome& outcome : outcomes_) outcome.told_to_end = !outcome.ended;
  told_to_end_ns_ = MonotonicNanos();
  const int64_t deadline = After(grace);
  // The first signal says what the ranks have been told already. A second one means that there is no time.
  const int signals_seen = std::max(signals_seen_, 1);
  end_signal_ = signal;
  SignalGroups(signal);
  TellOrphans(options_.subreaper, Groups(), end_signal_, &told_);
  KillStopped();
  const bool announces = cause && options_.on_failure && grace > kQuietEnd;
  if (WaitUntilGone(announces ? After(kQuietEnd) : deadline, signals_seen)) return;
  if (announces) {
    if (Running() && signals_seen_ <= signals_seen) options_.on_failure(EarlyFailureStatus(*cause, outcomes_, grace));
    if (WaitUntilGone(deadline, signals_seen)) return;
  }
  patience_ = absl::Trunc(absl::Nanoseconds(MonotonicNanos() - told_to_end_ns_), absl::Milliseconds(10));
  for (Outcome& outcome : outcomes_) outcome.needed_kill |= !outcome.ended;
  killing_ = true;
  Kill();
  if (!WaitUntilGone(After(kKillWait), std::numeric_limits<int>::max())) NoteWhatOutlived();
}

void Attempt::Kill() {
  KillJobCgroup(options_.cgroup);
  SignalGroups(SIGKILL);
  KillStrays(options_.subreaper, Groups());
}

void Attempt::NoteWhatOutlived() {
  for (Outcome& outcome : outcomes_) {
    outcome.outlived_kill = !outcome.ended;
    const std::optional<ProcessState> process = ReadProcessState(outcome.end.pid);
    if (process) outcome.process_state = process->state;
  }
  not_ended_ = NotEnded(StatesOfStrays(options_.subreaper, Groups()));
}

// In the final line, unless the ranks have ended well.
void Attempt::NameStraysThatOutlived(absl::Status* status) const {
  if (not_ended_.empty()) return;
  if (!status->ok()) {
    *status = WithEnding(*status, absl::StrCat("; ", not_ended_));
  } else if (options_.on_notice) {
    options_.on_notice(not_ended_);
  }
}

// A stopped process would handle its signal only after a SIGCONT.
void Attempt::KillStopped() {
  for (const pid_t pid : StoppedMembers(Groups())) {
    for (Outcome& outcome : outcomes_) {
      if (outcome.end.pid == pid) outcome.stopped = outcome.needed_kill = true;
    }
    kill(pid, SIGKILL);
  }
}

std::vector<pid_t> Attempt::Groups() const {
  std::vector<pid_t> groups;
  for (const Rank& rank : ranks_) {
    if (!rank.gone) groups.push_back(rank.process.pid);
  }
  return groups;
}

// Whether every rank and all they have started ended before the deadline and before more than `signals_allowed` signals
// came.
bool Attempt::WaitUntilGone(int64_t deadline, int signals_allowed) {
  do {
    while (Running() || !strays_.empty()) {
      if (MonotonicNanos() >= deadline || signals_seen_ > signals_allowed) return false;
      WaitForEvent(deadline);
      TellOrphans(options_.subreaper, Groups(), end_signal_, &told_);
    }
    strays_ = LiveStrays(options_.subreaper, Groups());
    if (killing_ && !strays_.empty()) Kill();
  } while (!strays_.empty());
  return true;
}

void Attempt::Reap() {
  for (const pid_t group : Groups()) waitpid(group, nullptr, WNOHANG);
}

}  // namespace lockstep::launch::internal
