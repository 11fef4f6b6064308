#include "lockstep/launch/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/flags/check_options.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/node/attempt.h"
#include "lockstep/launch/output/event_log.h"
#include "lockstep/launch/output/output.h"
#include "lockstep/launch/process/signal_relay.h"
#include "lockstep/launch/status/job_watcher.h"

namespace lockstep::launch {
namespace {

constexpr char kAgentId[] = "this node";

// Four ranks on two cores regroup in a fifth less time then.
constexpr absl::Duration kHeadStart = absl::Milliseconds(200);

JobLimits LimitsOf(const LaunchOptions& options) {
  JobLimits limits;
  limits.max_restarts = options.max_restarts;
  limits.restart_window = options.restart_window;
  limits.head_start = kHeadStart;
  return limits;
}

AgentState StateAtFirst(const LaunchOptions& options) {
  AgentState state;
  state.address = "127.0.0.1";
  state.ranks = options.nproc_per_node;
  state.spares = options.spares;
  return state;
}

// The job of one node, whose launcher is its only agent and leads it. With a static rendezvous each node has a job of
// its own, whose ranks have their place among those of the others.
class LocalJob {
 public:
  LocalJob(const std::vector<std::string>& argv, const LaunchOptions& options, SignalRelay* relay, Output* output,
           EventLog* events)
      : argv_(argv),
        options_(options),
        relay_(*relay),
        output_(*output),
        events_(*events),
        watcher_(WatcherOf(options.watcher)),
        steps_(kAgentId, StateAtFirst(options)),
        coordinator_(LimitsOf(options), JobState(), MonotonicTime()) {}

  // Starts the ranks, and starts them again for as long as the job goes on.
  absl::Status Run();

 private:
  void Decide();
  NodeStart PlaceOf(const NodeStart& start) const;
  AttemptControl Control();
  void Announce(const absl::Status& failure) const;
  absl::Duration Pause() const;
  int AwaitStart();

  const std::vector<std::string>& argv_;
  const LaunchOptions& options_;
  SignalRelay& relay_;
  Output& output_;
  EventLog& events_;
  JobWatcher& watcher_;
  AgentSteps steps_;
  Coordinator coordinator_;
};

void LocalJob::Decide() {
  coordinator_.Update({{kAgentId, steps_.state()}}, MonotonicTime());
  steps_.OnJob(coordinator_.job());
}

NodeStart LocalJob::PlaceOf(const NodeStart& start) const {
  NodeStart place = start;
  place.node_rank = options_.node_rank;
  place.nnodes = options_.nnodes;
  place.first_rank = options_.node_rank * options_.nproc_per_node;
  place.world_size = options_.nnodes * options_.nproc_per_node;
  place.master_addr = options_.master_addr;
  place.master_port = options_.master_port;
  return place;
}

AttemptControl LocalJob::Control() {
  AttemptControl control;
  control.nodes = options_.nnodes == 1 ? RankLinks::Nodes::kOne : RankLinks::Nodes::kStatic;
  control.next_look = [this] {
    const absl::Time look = coordinator_.next_look();
    return look == absl::InfiniteFuture() ? kNever : After(std::max(look - MonotonicTime(), absl::ZeroDuration()));
  };
  control.must_end = [this] {
    if (MonotonicTime() >= coordinator_.next_look()) Decide();
    return steps_.MustEnd();
  };
  control.ranks = [this] { return steps_.Ranks(); };
  control.on_slots = [this](const NodeSlots& slots, int port) {
    steps_.OnSlots(slots, port);
    Decide();
  };
  return control;
}

absl::Status LocalJob::Run() {
  absl::Status resumable;
  int port = 0;
  const AttemptControl control = Control();
  for (;;) {
    Decide();
    if (const std::optional<absl::Status> result = steps_.Result()) return result->ok() ? resumable : *result;
    const std::optional<NodeStart> start = steps_.TakeStart();
    if (!start) continue;  // the pause has just ended
    Attempt attempt(PlaceOf(*start), argv_, options_, &relay_, &output_, &events_, &control);
    events_.AttemptStarted(start->restarts, options_.nnodes, options_.node_rank);
    AttemptResult result = attempt.Run(port);
    port = result.master_port;
    resumable = std::move(result.resumable);
    const absl::Status status = result.failure.status;
    if (!status.ok()) events_.FirstCause(start->restarts, status);
    // The decisions do not know of it, such as that no descriptor is free for ranks that stay.
    if (!status.ok() && !result.must_end && steps_.Ranks().plan.formed) return status;
    steps_.OnEnd(status.ok() && !result.must_end, std::move(result.failure));
    Decide();
    const bool is_done = coordinator_.job().phase == JobState::Phase::kDone;
    if (result.signal != 0 && !(is_done && (result.must_end || status.ok())))
      return status.ok() ? StoppedStatus(result.signal, {}, absl::ZeroDuration()) : status;
    Announce(status);
    if (const int signal = AwaitStart()) return StoppedStatus(signal, {}, absl::ZeroDuration());
  }
}

// Logs the job's decision, now that the ranks have ended.
void LocalJob::Announce(const absl::Status& failure) const {
  const JobState& job = coordinator_.job();
  const auto say = [this](const std::string& line) {
    if (options_.on_notice) options_.on_notice(line);
  };
  if (job.phase == JobState::Phase::kDone) {
    const std::string late = job.ranks.LateFailures();
    if (job.result.ok() && !late.empty()) say(absl::StrCat(late, kAfterWork));
    return;
  }
  events_.Restart(job.restarts, failure.message(), Pause());
  say(job.reason);
}

// Returns the rest of the pause before the ranks start again.
absl::Duration LocalJob::Pause() const {
  if (coordinator_.job().phase != JobState::Phase::kForming) return absl::ZeroDuration();
  return std::max(coordinator_.next_look() - MonotonicTime(), absl::ZeroDuration());
}

// Waits for the pause before the ranks start again, or until a signal comes that ends the launch. Returns that signal,
// 0 if none. The other signals are for ranks, and no rank is running.
int LocalJob::AwaitStart() {
  if (coordinator_.job().phase == JobState::Phase::kDone) return 0;
  watcher_.OnPhase(JobStatus::Phase::kPausing);
  for (;;) {
    while (const int signal = relay_.Take()) {
      if (signal != SIGUSR1 && signal != SIGUSR2) return signal;
    }
    const absl::Duration left = Pause();
    if (left <= absl::ZeroDuration()) return 0;
    pollfd fds[] = {{relay_.fd(), POLLIN, 0}, {watcher_.fd(), POLLIN, 0}};
    poll(fds, 2, PollTimeout(left));
    if (fds[1].revents != 0) watcher_.Serve();
  }
}

}  // namespace

absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(argv, options));
  LOCKSTEP_RETURN_IF_ERROR(CheckThatChildrenCanBeWaitedFor());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Create(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<SignalRelay> relay, SignalRelay::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<EventLog> events, EventLog::Create(options));
  const absl::Status status = LocalJob(argv, options, relay.get(), output.get(), events.get()).Run();
  events->End(status);
  return status;
}

}  // namespace lockstep::launch
