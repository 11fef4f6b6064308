#include "lockstep/launch/node/agent.h"

#include <poll.h>
#include <signal.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/flags/check_options.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/node/attempt.h"
#include "lockstep/launch/node/job_link.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/node/wait_lines.h"
#include "lockstep/launch/output/event_log.h"
#include "lockstep/launch/output/output.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/process/signal_relay.h"
#include "lockstep/launch/status/job_watcher.h"

namespace lockstep::launch {
namespace {

// How long an agent that leaves waits until the leader has seen it, and a leader until the others have left.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(10);
// An agent that leaves does not wait for a rendezvous that has not answered for so long. etcd's members need about as
// long to elect a leader.
constexpr absl::Duration kSilenceBeforeLeaving = absl::Seconds(2);
// How long it then tries to remove what it has posted.
constexpr absl::Duration kSilentLeaveTimeout = absl::Milliseconds(200);

// How long Leave() may take. Nobody has seen an agent that was never in reach.
absl::Duration LeaveTimeout(const Rendezvous::Reach& reach) {
  if (!reach.met) return absl::ZeroDuration();
  return reach.silence ? kSilentLeaveTimeout : kLeaveTimeout;
}

AgentState StateAtFirst(const LaunchOptions& options, const AgentOptions& agent) {
  AgentState state;
  state.host = HostName();
  state.address = agent.address;
  state.node_rank = agent.node_rank;
  state.ranks = options.nproc_per_node;
  state.spares = options.spares;
  state.flags = agent.limits.flags;
  state.program = agent.limits.program;
  return state;
}

class Agent {
 public:
  Agent(const std::vector<std::string>& argv, const LaunchOptions& options, const AgentOptions& agent, JobLink* link,
        SignalRelay* relay, Output* output, EventLog* events)
      : argv_(argv),
        options_(options),
        agent_(agent),
        link_(*link),
        relay_(*relay),
        output_(*output),
        events_(*events),
        watcher_(WatcherOf(options.watcher)),
        steps_(agent.id, StateAtFirst(options, agent)),
        lines_(agent.where, agent.limits.join_timeout, MonotonicNanos()) {}

  absl::Status Run();

 private:
  absl::Status TakePort();
  void Post() { link_.Post(steps_.TakePost()); }
  void TakeJob();
  bool IsNoHelp(const JobState& job) const;
  void Announce(const JobState& job);
  void TakeSignals();
  void RecordSignal(int signal);
  bool HasWaitedToLeave() const;
  AttemptControl Control();
  AttemptResult RunRanks(const NodeStart& start);
  void OnEnd(AttemptResult result);
  absl::StatusOr<std::string> Drain(const std::string& host);
  bool DrainThis();
  absl::StatusOr<std::string> Resize(int min_nodes, int max_nodes);
  std::string WhenAnswered() const;
  void ShowJob();
  void RecordStayingRanks(const Member& member, HostStatus* host) const;
  NodeLimits Limits() const;
  void WaitForChange();
  bool IsMemberOf(const JobState& job) const { return IsMember(job, agent_.id); }
  bool IsSpare() const;
  void LogWarning();
  // A line of WaitLines may be empty.
  void Say(const std::string& line) const {
    if (options_.on_notice && !line.empty()) options_.on_notice(line);
  }

  const std::vector<std::string>& argv_;
  const LaunchOptions& options_;
  const AgentOptions& agent_;
  JobLink& link_;
  SignalRelay& relay_;
  Output& output_;
  EventLog& events_;
  JobWatcher& watcher_;
  AgentSteps steps_;
  WaitLines lines_;
  MasterSocket master_;  // holds the port that steps_.state() has
  JobState job_;
  bool knows_job_ = false;
  bool has_started_ = false;  // ranks of this node
  bool has_warned_ = false;
  std::set<std::string> said_strangers_;  // the lines about them
  int64_t announced_ = 0;                 // the generation whose end this node has told
  int64_t leaving_since_ns_ = 0;
  absl::Status resumable_;    // how the ranks of this node ended, if all of them have done their work
  bool shows_ranks_ = false;  // watcher_ follows the ranks of this node
};

// Gets a port, if this node may need one. Nothing is posted.
absl::Status Agent::TakePort() {
  if (!steps_.wants_port()) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(master_, HoldPort());
  steps_.OnPort(master_.port);
  return absl::OkStatus();
}

absl::Status Agent::Run() {
  LOCKSTEP_RETURN_IF_ERROR(TakePort());
  Post();
  JobRequests requests;
  requests.drain = [this](const std::string& host) { return Drain(host); };
  requests.drain_this = [this] { return DrainThis(); };
  requests.resize = [this](int min_nodes, int max_nodes) { return Resize(min_nodes, max_nodes); };
  watcher_.Offer(std::move(requests));
  for (;;) {
    TakeJob();
    TakeSignals();
    if (const std::optional<NodeStart> start = steps_.TakeStart()) {
      OnEnd(RunRanks(*start));
      continue;
    }
    if (const std::optional<absl::Status> result = steps_.Result()) return result->ok() ? resumable_ : *result;
    if (HasWaitedToLeave()) {
      const Rendezvous::Reach reach = link_.reach();
      if (reach.met && reach.silence) {
        Say("the other nodes have not heard that this one leaves, so they will count it as lost");
      }
      return StoppedStatus(steps_.state().signal, {}, absl::ZeroDuration());
    }
    WaitForChange();
  }
}

// It waits until the leader has seen that it leaves.
bool Agent::HasWaitedToLeave() const {
  if (leaving_since_ns_ == 0) return false;
  const int64_t now_ns = MonotonicNanos();
  if (now_ns - leaving_since_ns_ > absl::ToInt64Nanoseconds(kLeaveTimeout)) return true;
  const Rendezvous::Reach reach = link_.reach();
  return !reach.met ||
         (reach.silence && now_ns - reach.silence->since_ns >= absl::ToInt64Nanoseconds(kSilenceBeforeLeaving));
}

void Agent::TakeJob() {
  const absl::StatusOr<JobState> job = link_.TakeJob();
  if (!job.ok()) {
    steps_.OnLost(job.status());
    return;
  }
  const Rendezvous::Reach reach = link_.reach();
  watcher_.OnTrouble(reach.away && reach.silence ? reach.silence->what : "");
  const std::string change = lines_.OnReach(reach, shows_ranks_, MonotonicNanos());
  Say(change);
  if (!change.empty()) events_.Notice(change);
  Announce(*job);
  steps_.OnReach(!reach.away);
  steps_.OnJob(*job);
  if (IsNoHelp(*job)) steps_.OnLost(FindProgram(argv_[0]).status());
  if (leaving_since_ns_ == 0 && !steps_.state().leaving.empty()) leaving_since_ns_ = MonotonicNanos();
  if (steps_.state().phase == AgentState::Phase::kReady) {
    if (const absl::Status port = TakePort(); !port.ok()) steps_.OnLost(port);
  }
  if (steps_.must_post()) Post();
}

// Returns whether this node has come to a job that runs already, and cannot start its program. At the first start the
// others must hear of that.
bool Agent::IsNoHelp(const JobState& job) const {
  return job.start > 0 && steps_.state().entry == 0 && !IsMemberOf(job) && !FindProgram(argv_[0]).ok();
}

// Each node says once why the ranks start again, unless that was before it came, or it leaves itself. It may see the
// job only when it has formed anew.
void Agent::Announce(const JobState& job) {
  const bool forms = job.phase == JobState::Phase::kForming;
  const int64_t ended = forms ? job.start : job.start - 1;
  if (job.start > 0 && !std::exchange(knows_job_, true)) announced_ = ended;
  if ((forms || job.phase == JobState::Phase::kRunning) && !job.reason.empty() && ended > announced_) {
    if (leaving_since_ns_ == 0) Say(job.reason);
    events_.Notice(job.reason);
    announced_ = ended;
  }
  if (!job.flags.empty() && job.flags != job_.flags) Say(job.flags);
  for (const Stranger& stranger : job.strangers) {
    const std::string line = absl::StrCat(stranger.why, "; it was refused");
    if (stranger.agent == agent_.id || !said_strangers_.insert(line).second) continue;
    Say(line);
    events_.Notice(line);
  }
  const std::string late = job.ranks.LateFailures();
  const bool is_done = job.phase == JobState::Phase::kDone && job_.phase != JobState::Phase::kDone;
  if (is_done && job.result.ok() && !late.empty()) Say(absl::StrCat(late, kAfterWork));
  if (!job.ranks.awaited.empty() && job.ranks.awaited != job_.ranks.awaited) Say(job.ranks.awaited);
  if (!job.ranks.cuts.line.empty() && job.ranks.cuts.line != job_.ranks.cuts.line) {
    Say(job.ranks.cuts.line);
    events_.Notice(job.ranks.cuts.line);
  }
  job_ = job;
  const WaitLines::Wait wait = forms       ? WaitLines::Wait::kForming
                               : IsSpare() ? WaitLines::Wait::kSpare
                                           : WaitLines::Wait::kNone;
  lines_.OnJob(wait, Limits(), static_cast<int>(job_.members.size()), MonotonicNanos());
  ShowJob();
}

// The ranks of a node need not be neighbours after one has failed.
void Agent::RecordStayingRanks(const Member& member, HostStatus* host) const {
  const RankPlan& plan = job_.ranks;
  if (plan.start != job_.start || !plan.formed) return;
  host->ranks = 0;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const int node = plan.slots[plan.members[rank]].node;
    if (plan.nodes[node].entry != member.entry) continue;
    if (host->ranks == 0) host->first_rank = static_cast<int>(rank);
    if (host->first_rank + host->ranks++ != static_cast<int>(rank)) host->first_rank = -1;
  }
}

// The job's, or those of this launcher's flags until it has seen a decision.
NodeLimits Agent::Limits() const {
  return job_.limits.max_nodes > 0 ? job_.limits : NodeLimits{0, agent_.limits.min_nodes, agent_.limits.max_nodes};
}

void Agent::ShowJob() {
  const NodeLimits limits = Limits();
  watcher_.OnLimits(limits.min_nodes, limits.max_nodes);
  std::vector<HostStatus> hosts;
  int ranks = 0;
  for (const Member& member : job_.members) {
    HostStatus host;
    host.host = member.host;
    host.address = member.address;
    host.first_rank = ranks;
    host.ranks = member.ranks;
    RecordStayingRanks(member, &host);
    if (IsDrained(job_, member.agent)) host.state = HostStatus::State::kLeaving;
    if (HasLeft(job_, member.agent)) host.state = HostStatus::State::kLeft;
    if (absl::c_linear_search(job_.lost, member.agent)) host.state = HostStatus::State::kLost;
    ranks += member.ranks;
    hosts.push_back(std::move(host));
  }
  watcher_.OnHosts(std::move(hosts));
  const bool runs = job_.phase == JobState::Phase::kRunning || job_.phase == JobState::Phase::kEnding;
  if (shows_ranks_) return;
  if (job_.phase == JobState::Phase::kForming) watcher_.OnPhase(JobStatus::Phase::kForming);
  if (runs && !IsMemberOf(job_)) watcher_.OnSpare(job_.start, job_.restarts);
}

// Hosts may have the same name, as containers do, but the agents reach each other at different addresses.
absl::StatusOr<std::string> Agent::Drain(const std::string& host) {
  std::vector<std::string> hosts, found;
  for (const Member& member : job_.members) {
    hosts.push_back(member.host == member.address ? member.host : absl::StrCat(member.host, " (", member.address, ")"));
    if (host == member.host || host == member.address) found.push_back(member.agent);
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(found.size(), " nodes are called ", host, ": ", HostsText(hosts),
                                                   "; name one by its address, or run launch drain on its host"));
  }
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no node is called ", host,
                                            hosts.empty() ? "" : absl::StrCat("; the job has ", HostsText(hosts))));
  }
  if (absl::c_linear_search(job_.lost, found[0])) {
    return absl::FailedPreconditionError(absl::StrCat("host ", host, " was lost"));
  }
  steps_.OnDrain(found[0]);
  Post();
  return absl::StrCat("host ", host, " is asked to leave the job", WhenAnswered());
}

// Returns the text that a reply to people adds while the others do not know of their request.
std::string Agent::WhenAnswered() const {
  const Rendezvous::Reach reach = link_.reach();
  if (!reach.away || !reach.silence) return "";
  return absl::StrCat(", once it is known to the others: ", reach.silence->what);
}

bool Agent::DrainThis() {
  if (!steps_.Ranks().stays()) return false;
  steps_.OnDrain(agent_.id);
  Post();
  return true;
}

absl::StatusOr<std::string> Agent::Resize(int min_nodes, int max_nodes) {
  steps_.OnResize(min_nodes, max_nodes);
  Post();
  return absl::StrCat("the job is asked to have ", RangeText({0, min_nodes, max_nodes}, " to "),
                      max_nodes == 1 ? " node" : " nodes", WhenAnswered());
}

void Agent::TakeSignals() {
  while (const int signal = relay_.Take()) {
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;
    if (leaving_since_ns_ != 0) {  // a second signal means that there is no time
      leaving_since_ns_ = 1;
      continue;
    }
    RecordSignal(signal);
    Post();
  }
}

void Agent::RecordSignal(int signal) {
  leaving_since_ns_ = MonotonicNanos();
  steps_.OnSignal(signal, absl::StrCat("received signal ", signal, " (", SignalName(signal), ")"));
}

AttemptControl Agent::Control() {
  AttemptControl control;
  control.nodes = RankLinks::Nodes::kAgents;
  control.fd = link_.fd();
  control.must_end = [this] {
    TakeJob();
    return steps_.MustEnd();
  };
  control.on_failing = [this] {
    steps_.OnFailing();
    Post();
  };
  control.on_signal = [this](int signal) {
    RecordSignal(signal);
    Post();
  };
  control.ranks = [this] { return steps_.Ranks(); };
  control.on_slots = [this](const NodeSlots& slots, int port) {
    steps_.OnSlots(slots, port);
    Post();
  };
  return control;
}

// All their descriptors are free again when it returns.
AttemptResult Agent::RunRanks(const NodeStart& start) {
  Post();
  LogWarning();
  const AttemptControl control = Control();
  const int number = static_cast<int>(start.number - 1);
  Attempt attempt(start, argv_, options_, &relay_, &output_, &events_, &control);
  if (std::exchange(has_started_, true)) events_.Restart(number, job_.reason, std::nullopt);
  events_.AttemptStarted(number, start.nnodes, start.node_rank);
  shows_ranks_ = true;
  AttemptResult result = attempt.Run(0);
  shows_ranks_ = false;
  if (!result.failure.status.ok()) events_.FirstCause(number, result.failure.status);
  return result;
}

void Agent::OnEnd(AttemptResult result) {
  resumable_ = result.resumable;
  watcher_.OnPhase(JobStatus::Phase::kForming);
  if (result.signal != 0) RecordSignal(result.signal);
  // The time that the ranks needed to leave does not count.
  if (leaving_since_ns_ != 0) leaving_since_ns_ = MonotonicNanos();
  absl::Status& failure = result.failure.status;
  const bool succeeded = failure.ok() && !result.must_end && result.signal == 0;
  if (IsStop(failure)) failure = absl::OkStatus();
  steps_.OnEnd(succeeded, std::move(result.failure));
  if (const absl::Status port = TakePort(); !port.ok()) steps_.OnLost(port);
  Post();
}

void Agent::WaitForChange() {
  LogWarning();
  pollfd fds[] = {{link_.fd(), POLLIN, 0}, {relay_.fd(), POLLIN, 0}, {watcher_.fd(), POLLIN, 0}};
  poll(fds, 3, leaving_since_ns_ != 0 || lines_.waits() ? 500 : -1);
  if (fds[2].revents != 0) {
    watcher_.OnReady(link_.ready());
    watcher_.Serve();
  }
  // A signal may have come, and then the line would be about the past.
  if (fds[1].revents != 0 || leaving_since_ns_ != 0) return;
  Say(lines_.Take(link_.reach(), link_.ready(), MonotonicNanos()));
}

void Agent::LogWarning() {
  if (link_.ready() && !std::exchange(has_warned_, true)) Say(agent_.warning);
}

// Returns whether the job runs without this node.
bool Agent::IsSpare() const {
  return job_.phase == JobState::Phase::kRunning && !IsMemberOf(job_) && !IsDrained(job_, agent_.id);
}

}  // namespace

absl::Status RunAgent(const std::vector<std::string>& argv, const LaunchOptions& options, const AgentOptions& agent,
                      std::unique_ptr<Rendezvous> rendezvous) {
  LOCKSTEP_RETURN_IF_ERROR(CheckThatChildrenCanBeWaitedFor());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Create(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<SignalRelay> relay, SignalRelay::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<JobLink> link, JobLink::Start(agent.limits, std::move(rendezvous)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<EventLog> events, EventLog::Create(options));
  const absl::Status result = Agent(argv, options, agent, link.get(), relay.get(), output.get(), events.get()).Run();
  events->End(result);
  link->Leave(LeaveTimeout(link->reach()));
  return result;
}

}  // namespace lockstep::launch
