#include "lockstep/tools/launch/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/attempt.h"
#include "lockstep/tools/launch/internal/check_options.h"
#include "lockstep/tools/launch/internal/event_log.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/internal/outcome.h"
#include "lockstep/tools/launch/internal/output.h"
#include "lockstep/tools/launch/internal/report_file.h"
#include "lockstep/tools/launch/internal/restart_policy.h"
#include "lockstep/tools/launch/internal/signal_relay.h"
#include "lockstep/tools/launch/status/internal/job_watcher.h"

namespace lockstep::launch {
namespace {

// Waits for `pause`, or until a signal comes that ends the launch. Returns that signal, 0 if none. The other signals are
// for ranks, and no rank is running.
int SignalWithin(absl::Duration pause, internal::SignalRelay* relay, internal::JobWatcher* watcher) {
  watcher->NotePhase(internal::JobStatus::Phase::kPausing);
  const absl::Time end = internal::MonotonicTime() + pause;
  for (;;) {
    while (const int signal = relay->Take()) {
      if (signal != SIGUSR1 && signal != SIGUSR2) return signal;
    }
    const absl::Duration left = end - internal::MonotonicTime();
    if (left <= absl::ZeroDuration()) return 0;
    pollfd fds[] = {{relay->fd(), POLLIN, 0}, {watcher->fd(), POLLIN, 0}};
    poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    if (fds[1].revents != 0) watcher->Serve();
  }
}

// The place of this node, whose ranks start for the first time.
internal::Generation FirstGeneration(const LaunchOptions& options) {
  internal::Generation generation;
  generation.node_rank = options.node_rank;
  generation.nnodes = options.nnodes;
  generation.first_rank = options.node_rank * options.nproc_per_node;
  generation.world_size = options.nnodes * options.nproc_per_node;
  generation.master_addr = options.master_addr;
  generation.master_port = options.master_port;
  return generation;
}

// Starts the ranks, and starts them again for as long as the policy says.
absl::Status RunAttempts(const std::vector<std::string>& argv, const LaunchOptions& options,
                         internal::SignalRelay* relay, internal::Output* output, internal::EventLog* events) {
  internal::RestartPolicy policy(options.max_restarts, options.restart_window);
  internal::Generation generation = FirstGeneration(options);
  internal::JobWatcher& watcher = internal::WatcherOf(options.watcher);
  for (int earlier_port = 0;; ++generation.number) {
    generation.restarts = policy.restarts();
    internal::Attempt attempt(generation, argv, options, relay, output, events);
    events->AttemptStarted(policy.restarts(), generation.nnodes, generation.node_rank);
    const absl::Time start = internal::MonotonicTime();
    const internal::AttemptResult result = attempt.Run(earlier_port);
    if (result.status.ok()) return result.resumable;
    events->FirstCause(policy.restarts(), result.status);
    if (!policy.Restart(result.end, start, internal::MonotonicTime())) {
      return internal::WithEnding(result.status, policy.Ending(result.end));
    }
    events->Restart(policy.restarts(), result.status.message(), policy.Pause());
    if (options.on_notice) options.on_notice(absl::StrCat(result.status.message(), "; ", policy.Announcement()));
    if (const int signal = SignalWithin(policy.Pause(), relay, &watcher)) {
      return internal::StoppedStatus(signal, {}, absl::ZeroDuration());
    }
    earlier_port = result.master_port;
  }
}

}  // namespace

absl::Status Launch(const std::vector<std::string>& argv, const LaunchOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckOptions(argv, options));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckThatChildrenCanBeWaitedFor());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<internal::Output> output, internal::Output::Create(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<internal::SignalRelay> relay, internal::SignalRelay::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<internal::EventLog> events, internal::EventLog::Create(options));
  const absl::Status status = RunAttempts(argv, options, relay.get(), output.get(), events.get());
  events->End(status);
  return status;
}

}  // namespace lockstep::launch
