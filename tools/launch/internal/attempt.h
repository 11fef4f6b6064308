// One start of the ranks of a node, until the last of them has ended. Ranks that stay when another one fails
// (agent_link) make one attempt, also if processes of it are started again.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_ATTEMPT_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_ATTEMPT_H_

#include <stdint.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/internal/deadline.h"
#include "lockstep/tools/launch/internal/early_deaths.h"
#include "lockstep/tools/launch/internal/event_log.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/internal/outcome.h"
#include "lockstep/tools/launch/internal/output.h"
#include "lockstep/tools/launch/internal/process.h"
#include "lockstep/tools/launch/internal/rank_starter.h"
#include "lockstep/tools/launch/internal/regrouper.h"
#include "lockstep/tools/launch/internal/restart_policy.h"
#include "lockstep/tools/launch/internal/signal_relay.h"
#include "lockstep/tools/launch/internal/unique_fd.h"
#include "lockstep/tools/launch/status/internal/job_watcher.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch::internal {

struct AttemptResult {
  absl::Status status;
  absl::Status resumable;                // if `status` is OK: about a rank that ended with kResumableExitCode
  AttemptEnd end = AttemptEnd::kFailed;  // means nothing if the status is OK
  bool must_end = false;                 // AttemptControl ended it before a rank had failed; the status may be OK
  int signal = 0;                        // the first signal that this process received and that ends it
  // About the rank that the status names, if there is one.
  bool consequence = false;
  bool killed = false;
  int64_t failed_ns = 0;
  int master_port = 0;
};

// How the agent of a job of several nodes ends the ranks of its node together with the ranks of the others, or keeps
// them when another one fails. All functions are called on the thread of Attempt::Run().
struct AttemptControl {
  int fd = -1;                         // when it becomes readable, `must_end` is asked
  std::function<bool()> must_end;      // whether the ranks must be ended; makes `fd` unreadable
  std::function<void()> on_failing;    // a rank has failed, and the others are about to be ended
  std::function<void(int)> on_signal;  // this process has received this signal, and the ranks are about to be ended
  std::function<NodeRanks()> ranks;    // what the job says to processes that stay; asked after `must_end`
  // What the job must know of processes that ask for generations has changed.
  std::function<void(const NodeSlots& slots, int port)> on_slots;
};

class Attempt {
 public:
  // Everything but `generation` must outlive the object. `control` is null unless another process may end the ranks.
  Attempt(const Generation& generation, const std::vector<std::string>& argv, const LaunchOptions& options,
          SignalRelay* relay, Output* output, EventLog* events, const AttemptControl* control = nullptr)
      : generation_(generation),
        argv_(argv),
        options_(options),
        relay_(*relay),
        output_(*output),
        events_(*events),
        watcher_(WatcherOf(options.watcher)),
        control_(control),
        regrouper_(generation, options, NodesOf(generation, control)) {}

  // Starts the ranks and blocks until all have ended. Call it once. If it chooses a port, it is not `earlier_port`.
  AttemptResult Run(int earlier_port);

 private:
  static Regrouper::Nodes NodesOf(const Generation& generation, const AttemptControl* control) {
    if (control) return Regrouper::Nodes::kAgents;
    return generation.nnodes == 1 ? Regrouper::Nodes::kOne : Regrouper::Nodes::kStatic;
  }

  // Of the files and events of the processes that start now.
  int number() const { return static_cast<int>(generation_.number - 1) + regrouper_.restarts_here(); }

  // The process side of outcomes_[local rank].
  struct Rank {
    Process process;
    UniqueFd report;
    int64_t started_ns = 0;
    int attempt = 0;    // number() when it started
    bool gone = false;  // its group has been killed, and its pid may be another process's
  };

  absl::Status StartAll(int earlier_port);
  absl::Status StartRank(int local_rank);
  void StartSpares();
  void TellUnasked();
  absl::Status StartRankAgain(int local_rank);
  void ReplaceRank(int local_rank);
  NodeFailure FailureOf(const Outcome& outcome) const;
  bool HoldsEarlyDeath(int i, const NodeFailure& failure);
  void TakeEarlyDeaths();
  void DecideAbout(int slot, const NodeFailure& failure);
  void NoteLateFailure(const Outcome& outcome, const NodeFailure& failure);
  void Regroup();
  void Carry(const Membership::Decision& decision);
  void NoteGeneration(const Membership::Decision& decision);
  void NoteLeaving(const Membership::Decision& decision);
  void TellWhoIsAwaited();
  void EndStalled(int slot);
  std::string NameOf(int slot) const;

  bool Running() const;
  bool WillEnd() const;
  bool HasEndedRank() const;
  bool MayLearnMore(int64_t deadline) const;
  void WaitForEvent(int64_t deadline);
  void TakeSignals();
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
  void Kill();
  void NoteWhatOutlived();
  void NameStraysThatOutlived(absl::Status* status) const;
  bool WaitUntilGone(int64_t deadline, int signals_allowed);
  void FinishOutput();
  void Reap();

  absl::Status Verdict(bool stopped) const;
  absl::Status LateFailure() const;
  absl::Status Resumable() const;
  AttemptEnd End(bool started) const;
  AttemptResult Result(const absl::Status& started, bool stopped) const;
  void AskControl();

  const Generation generation_;
  const std::vector<std::string>& argv_;
  const LaunchOptions& options_;
  SignalRelay& relay_;
  Output& output_;
  EventLog& events_;
  JobWatcher& watcher_;
  const AttemptControl* const control_;
  Regrouper regrouper_;
  std::optional<RankStarter> starter_;
  // The failures of ranks since the last generation began, which count if the ranks had done all their work: of the first
  // rank that failed by itself, and of all that were ended from outside. Not with control_.
  absl::Status late_failure_;
  std::vector<std::string> late_kills_;
  absl::Status broken_;    // why the ranks cannot go on, although none has failed
  bool must_end_ = false;  // said by control_
  int master_port_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Outcome> outcomes_;  // one for each of ranks_
  EarlyDeaths early_deaths_;
  std::optional<bool> may_stay_;  // starter_->MayStay(), once it was asked
  // When TellWhoIsAwaited() is due, and why members must leave their generation.
  int64_t tell_at_ = kNever;
  std::string leaving_because_;
  int64_t unasked_at_ = kNever;   // when TellUnasked() is due
  std::vector<UniqueFd> strays_;  // processes that the ranks started and left behind
  UniqueFd ends_;                 // an epoll of the ranks' pidfds, which says in which order they ended
  int64_t told_to_end_ns_ = 0;
  int stopped_looks_ = 0;  // how often in succession all running ranks were stopped
  int stop_signal_ = 0;    // the first signal that this process got
  int signals_seen_ = 0;
  int end_signal_ = 0;       // that tells ranks and strays to end
  std::set<pid_t> told_;     // the strays outside of the ranks' groups that got it
  bool killing_ = false;     // the ranks and strays get SIGKILL
  std::string not_ended_;    // names the strays that SIGKILL did not end
  absl::Duration patience_;  // how long the ranks had before SIGKILL
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_ATTEMPT_H_
