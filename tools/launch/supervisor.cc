#include "lockstep/tools/launch/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/group_members.h"
#include "lockstep/tools/launch/internal/master_socket.h"
#include "lockstep/tools/launch/internal/outcome.h"
#include "lockstep/tools/launch/internal/process.h"
#include "lockstep/tools/launch/internal/rank_variables.h"
#include "lockstep/tools/launch/internal/report_file.h"
#include "lockstep/tools/launch/internal/signal_relay.h"
#include "lockstep/tools/launch/internal/unique_fd.h"

namespace lockstep::launch {
namespace {

using internal::MonotonicNanos;
using internal::Outcome;
using internal::UniqueFd;

constexpr int64_t kMillisecond = 1000000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// How long the real cause may lag behind the first failure seen. Gloo reports a dead peer in 3 ms.
constexpr absl::Duration kSettle = absl::Milliseconds(100);
// The same if every failure so far is a consequence. A failed group's destructor takes up to 1 s, then the rank ends.
constexpr absl::Duration kTruerCauseWait = absl::Seconds(5);
// Most ranks end within this time after the signal. Then one line at the end is enough.
constexpr absl::Duration kQuietEnd = absl::Seconds(1);
// How often a rank is looked at during LaunchOptions::stopped_patience.
constexpr int kStoppedLooks = 10;
// A process that SIGKILL does not end is stuck in the kernel. The launcher reports that instead of waiting for it.
constexpr absl::Duration kKillWait = absl::Seconds(10);

int64_t After(absl::Duration duration) {
  const int64_t now = MonotonicNanos();
  return duration < absl::Nanoseconds(kNever - now) ? now + absl::ToInt64Nanoseconds(duration) : kNever;
}

int PollTimeout(int64_t deadline) {
  if (deadline == kNever) return -1;
  const int64_t left = (deadline - MonotonicNanos() + kMillisecond - 1) / kMillisecond;
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

// Errors with these codes mean that a peer was gone or did not answer, most likely another rank.
bool IsAboutOthers(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

// The process side of outcomes_[local rank].
struct Rank {
  internal::Process process;
  UniqueFd report;
};

class Supervisor {
 public:
  Supervisor(const std::vector<std::string>& argv, const LaunchOptions& options) : argv_(argv), options_(options) {}
  absl::Status Run();

 private:
  absl::Status StartAll();
  absl::Status StartRank(const internal::ProcessSpec& program, const internal::RankPlace& place,
                         const UniqueFd& master_socket);
  absl::StatusOr<internal::MasterSocket> ChooseMaster() const;

  bool Running() const;
  bool HasEndedRank() const;
  bool MayLearnMore(int64_t deadline) const;
  void WaitForEvent(int64_t deadline);
  void NoteEnds();
  void NoteSignal(int signal);
  void NoteEnd(int i);
  void NoteReport(int i);
  void WaitForVerdict();
  void LookForStopped();

  void EndGroups(int signal, absl::Duration grace, const Outcome* cause);
  void KillStopped();
  std::vector<pid_t> Groups() const;
  void SignalGroups(int signal);
  bool WaitUntilGone(int64_t deadline, int signals_allowed);
  void Reap();

  const std::vector<std::string>& argv_;
  const LaunchOptions& options_;
  std::unique_ptr<internal::SignalRelay> relay_;
  std::string job_secret_;  // empty: the ranks get none from here
  std::vector<Rank> ranks_;
  std::vector<Outcome> outcomes_;  // one for each of ranks_
  std::vector<UniqueFd> strays_;   // processes that the ranks started and left behind
  UniqueFd ends_;                  // an epoll of the ranks' pidfds, which says in which order they ended
  int64_t told_to_end_ns_ = 0;
  int stopped_looks_ = 0;  // how often in succession all running ranks were stopped
  int stop_signal_ = 0;    // the first signal that this process got
  int signals_seen_ = 0;
  absl::Duration patience_;  // how long the ranks had before SIGKILL
};

bool Supervisor::MayLearnMore(int64_t deadline) const {
  return Running() && stop_signal_ == 0 && MonotonicNanos() < deadline;
}

// Returns when all ranks have ended, when one has failed and the real cause has had time to show, or when a signal
// arrived.
void Supervisor::WaitForVerdict() {
  while (MayLearnMore(kNever) && !FirstCause(outcomes_)) {
    // No event tells that a rank has been stopped.
    const int64_t look = HasEndedRank() ? After(options_.stopped_patience / kStoppedLooks) : kNever;
    WaitForEvent(look);
    if (MonotonicNanos() >= look) LookForStopped();
  }
  if (!FirstCause(outcomes_)) return;
  const int64_t settled = After(kSettle), last = After(kTruerCauseWait);
  while (MayLearnMore(settled)) WaitForEvent(settled);
  while (MayLearnMore(last) && TruerCauseMayCome(outcomes_)) WaitForEvent(last);
}

absl::Status Supervisor::Run() {
  LOCKSTEP_ASSIGN_OR_RETURN(relay_, internal::SignalRelay::Create());
  const absl::Status started = StartAll();
  if (started.ok()) WaitForVerdict();
  const Outcome* cause = FirstCause(outcomes_);
  // A scheduler that ends a job signals both launcher and ranks.
  const bool stopped = stop_signal_ != 0 && (!cause || cause->end.signal == stop_signal_);
  if (stopped) {
    EndGroups(stop_signal_, options_.grace, nullptr);
  } else {
    EndGroups(SIGTERM, options_.failure_grace.value_or(options_.grace), cause);
  }
  Reap();
  if (!started.ok()) return started;
  if (stopped) return internal::StoppedStatus(stop_signal_, outcomes_, patience_);
  if (!cause) return absl::OkStatus();
  // A rank may have reported its own error, but not have ended when the launcher's signal came.
  return internal::FailureStatus(*FirstCause(outcomes_), outcomes_, patience_);
}

absl::StatusOr<internal::MasterSocket> Supervisor::ChooseMaster() const {
  internal::MasterSocket master;
  master.port = options_.master_port;
  if (master.port != 0) return master;
  if (options_.pass_master_socket) return internal::ListenOnLoopback();
  LOCKSTEP_ASSIGN_OR_RETURN(master.port, internal::FreePort());
  return master;
}

absl::Status Supervisor::StartAll() {
  ends_ = internal::AboveStdio(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  if (!ends_.valid()) return absl::ResourceExhaustedError(absl::StrCat("launch: no epoll: ", strerror(errno)));
  internal::ProcessSpec program;
  program.path = options_.executable;
  program.argv = argv_;
  if (program.path.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(program.path, internal::FindProgram(argv_[0]));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const internal::MasterSocket master, ChooseMaster());
  internal::RankPlace place;
  place.nproc_per_node = options_.nproc_per_node;
  place.node_rank = options_.node_rank;
  place.nnodes = options_.nnodes;
  place.master_addr = options_.master_addr.empty() ? "127.0.0.1" : options_.master_addr;
  place.master_port = master.port;
  place.run_id = options_.run_id;
  job_secret_ = internal::NewJobSecret(options_.nnodes, options_.environment);
  for (place.local_rank = 0; place.local_rank < place.nproc_per_node; ++place.local_rank) {
    LOCKSTEP_RETURN_IF_ERROR(StartRank(program, place, master.fd));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::StartRank(const internal::ProcessSpec& program, const internal::RankPlace& place,
                                   const UniqueFd& master_socket) {
  Rank rank;
  LOCKSTEP_ASSIGN_OR_RETURN(rank.report, internal::CreateReportFile());
  auto variables = internal::RankVariables(place, getenv("OMP_NUM_THREADS") != nullptr);
  variables[internal::kErrorFileVariable] = internal::ReportPath(rank.report);
  variables[internal::kTorchErrorFileVariable] = internal::ReportPath(rank.report);
  internal::ProcessSpec spec = program;
  if (place.local_rank == 0 && master_socket.valid()) {
    spec.inherited_fd = master_socket.get();
    variables[internal::kMasterSocketVariable] = absl::StrCat(master_socket.get());
  }
  if (!job_secret_.empty()) variables[internal::kJobSecretVariable] = job_secret_;
  for (const auto& [name, value] : options_.environment) variables[name] = value;
  spec.environment = internal::ChangedEnvironment(variables);
  LOCKSTEP_ASSIGN_OR_RETURN(rank.process, internal::StartProcess(spec));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = ranks_.size();
  epoll_ctl(ends_.get(), EPOLL_CTL_ADD, rank.process.pidfd.get(), &event);
  Outcome outcome;
  outcome.end.local_rank = place.local_rank;
  outcome.end.rank = place.node_rank * place.nproc_per_node + place.local_rank;
  outcome.end.pid = rank.process.pid;
  outcomes_.push_back(std::move(outcome));
  ranks_.push_back(std::move(rank));
  return absl::OkStatus();
}

bool Supervisor::HasEndedRank() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(), [](const Outcome& o) { return o.ended; });
}

// Counts looks instead of time, since this process may have been stopped too.
void Supervisor::LookForStopped() {
  const bool all_stopped = std::all_of(outcomes_.begin(), outcomes_.end(),
                                       [](const Outcome& o) { return o.ended || internal::IsStopped(o.end.pid); });
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

bool Supervisor::Running() const {
  return std::any_of(outcomes_.begin(), outcomes_.end(), [](const Outcome& o) { return !o.ended; });
}

// Returns when a rank or a stray has ended, a signal has come, or at the deadline.
void Supervisor::WaitForEvent(int64_t deadline) {
  std::vector<pollfd> fds = {{relay_->fd(), POLLIN, 0}, {ends_.get(), POLLIN, 0}};
  for (const UniqueFd& stray : strays_) fds.push_back({stray.get(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), PollTimeout(deadline)) <= 0) return;
  while (const int signal = relay_->Take()) NoteSignal(signal);
  NoteEnds();
  strays_.erase(std::remove_if(strays_.begin(), strays_.end(), internal::HasEnded), strays_.end());
}

// An epoll lists descriptors in the order in which they became ready. So if several ranks ended before this process
// checked, the one that ended first is noted first.
void Supervisor::NoteEnds() {
  std::vector<epoll_event> events(ranks_.size());
  const int ready = events.empty() ? 0 : epoll_wait(ends_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const int rank = static_cast<int>(events[i].data.u64);
    epoll_ctl(ends_.get(), EPOLL_CTL_DEL, ranks_[rank].process.pidfd.get(), nullptr);
    NoteEnd(rank);
  }
}

void Supervisor::NoteSignal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    SignalGroups(signal);
  } else if (signals_seen_++ == 0) {
    stop_signal_ = signal;
  }
}

// Does not reap the process: until it is reaped, the number of the rank's process group cannot be reused.
void Supervisor::NoteEnd(int i) {
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
  outcome.failed = outcome.end.exit_code != 0;
  NoteReport(i);
}

void Supervisor::NoteReport(int i) {
  Outcome& outcome = outcomes_[i];
  const std::optional<internal::Report> report = internal::ReadReport(ranks_[i].report);
  if (!report && !outcome.failed && options_.require_report) {
    outcome.failed = true;
    outcome.end.message = "it ended before its work did";
  }
  outcome.consequence = outcome.failed && internal::WasTold(ranks_[i].report);
  if (!report || !outcome.failed || report->code == absl::StatusCode::kOk) return;
  outcome.code = report->code;
  outcome.end.message = report->message;
  const int64_t said_ns = report->time_ns > 0 ? report->time_ns : outcome.time_ns;
  outcome.consequence = report->consequence || IsAboutOthers(report->code);
  outcome.reported_before = outcome.told_to_end && !outcome.consequence && said_ns < told_to_end_ns_;
  outcome.time_ns = std::min(outcome.time_ns, said_ns);
}

void Supervisor::SignalGroups(int signal) {
  for (const Rank& rank : ranks_) kill(-rank.process.pid, signal);
}

void Supervisor::EndGroups(int signal, absl::Duration grace, const Outcome* cause) {
  NoteEnds();
  for (Outcome& outcome : outcomes_) outcome.told_to_end = !outcome.ended;
  told_to_end_ns_ = MonotonicNanos();
  const int64_t deadline = After(grace);
  const int signals_seen = signals_seen_;
  SignalGroups(signal);
  KillStopped();
  const bool announces = cause && options_.on_failure && grace > kQuietEnd;
  if (WaitUntilGone(announces ? After(kQuietEnd) : deadline, signals_seen)) return;
  if (announces) {
    if (Running() && signals_seen_ == signals_seen)
      options_.on_failure(internal::EarlyFailureStatus(*cause, outcomes_, grace));
    if (WaitUntilGone(deadline, signals_seen)) return;
  }
  patience_ = absl::Trunc(absl::Nanoseconds(MonotonicNanos() - told_to_end_ns_), absl::Milliseconds(10));
  for (Outcome& outcome : outcomes_) outcome.needed_kill |= !outcome.ended;
  SignalGroups(SIGKILL);
  if (WaitUntilGone(After(kKillWait), std::numeric_limits<int>::max())) return;
  for (Outcome& outcome : outcomes_) outcome.outlived_kill = !outcome.ended;
}

// A stopped process would handle its signal only after a SIGCONT.
void Supervisor::KillStopped() {
  for (const pid_t pid : internal::StoppedMembers(Groups())) {
    for (Outcome& outcome : outcomes_) {
      if (outcome.end.pid == pid) outcome.stopped = outcome.needed_kill = true;
    }
    kill(pid, SIGKILL);
  }
}

std::vector<pid_t> Supervisor::Groups() const {
  std::vector<pid_t> groups;
  for (const Rank& rank : ranks_) groups.push_back(rank.process.pid);
  return groups;
}

// Whether every rank and all they have started ended before the deadline and before more than `signals_allowed` signals
// came.
bool Supervisor::WaitUntilGone(int64_t deadline, int signals_allowed) {
  do {
    while (Running() || !strays_.empty()) {
      if (MonotonicNanos() >= deadline || signals_seen_ > signals_allowed) return false;
      WaitForEvent(deadline);
    }
    strays_ = internal::LiveMembers(Groups());
  } while (!strays_.empty());
  return true;
}

void Supervisor::Reap() {
  for (const Outcome& outcome : outcomes_) waitpid(outcome.end.pid, nullptr, WNOHANG);
}

absl::Status CheckOptions(const std::vector<std::string>& argv, const LaunchOptions& options) {
  const auto bad = [](const auto&... parts) { return absl::InvalidArgumentError(absl::StrCat(parts...)); };
  if (argv.empty()) return bad("no program to launch");
  if (options.nproc_per_node < 1) return bad("nproc_per_node must be at least 1, but is ", options.nproc_per_node);
  if (options.nnodes < 1) return bad("nnodes must be at least 1, but is ", options.nnodes);
  if (options.node_rank < 0 || options.node_rank >= options.nnodes) {
    return bad("node_rank must be from 0 to nnodes - 1 = ", options.nnodes - 1, ", but is ", options.node_rank);
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    return bad("master_port must be from 0 to 65535, but is ", options.master_port);
  }
  if (options.nnodes > 1 && options.master_addr.empty()) {
    return bad("nnodes = ", options.nnodes, " needs master_addr, the address of node 0");
  }
  if (options.nnodes > 1 && options.master_port == 0) {
    return bad("nnodes = ", options.nnodes,
               " needs master_port, a port that is free on node 0, the same on every node");
  }
  return absl::OkStatus();
}

// If SIGCHLD is ignored, the kernel discards exit codes.
absl::Status CheckThatChildrenCanBeWaitedFor() {
  struct sigaction action;
  sigaction(SIGCHLD, nullptr, &action);
  if (action.sa_handler != SIG_IGN && !(action.sa_flags & SA_NOCLDWAIT)) return absl::OkStatus();
  return absl::FailedPreconditionError("launch: this process ignores SIGCHLD, so how its ranks end cannot be known");
}

}  // namespace

absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(argv, options));
  LOCKSTEP_RETURN_IF_ERROR(CheckThatChildrenCanBeWaitedFor());
  return Supervisor(argv, options).Run();
}

}  // namespace lockstep::launch
