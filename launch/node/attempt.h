// One start of the ranks of a node, until the last of them has ended. Ranks that stay when another one fails
// (launch/link) make one attempt, also if processes of it are started again.

#ifndef LOCKSTEP_LAUNCH_NODE_ATTEMPT_H_
#define LOCKSTEP_LAUNCH_NODE_ATTEMPT_H_

#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/job/early_deaths.h"
#include "lockstep/launch/job/failure.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/job/node_slots.h"
#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/job/rank_plan.h"
#include "lockstep/launch/node/rank_links.h"
#include "lockstep/launch/node/rank_processes.h"
#include "lockstep/launch/node/rank_starter.h"
#include "lockstep/launch/output/event_log.h"
#include "lockstep/launch/output/output.h"
#include "lockstep/launch/process/signal_relay.h"
#include "lockstep/launch/status/job_watcher.h"

namespace lockstep::launch {

struct AttemptResult {
  Failure failure;         // about the first cause; its status is OK if no rank has failed
  absl::Status resumable;  // about a rank that ended with kResumableExitCode; it counts if the job has not failed
  bool must_end = false;   // the job said that the ranks must end
  int signal = 0;          // the first signal that this process received and that ends it
  int master_port = 0;
};

// How the job ends the ranks of this node, together with the ranks of other nodes if there are any, or keeps them when
// another one fails. All functions are called on the thread of Attempt::Run().
struct AttemptControl {
  RankLinks::Nodes nodes = RankLinks::Nodes::kOne;  // who decides about processes that stay
  int fd = -1;                                      // readable when `must_end` has something to look at; -1: none
  // When it has something to look at in any case: MonotonicNanos(), or kNever.
  std::function<int64_t()> next_look = [] { return kNever; };
  std::function<bool()> must_end;  // whether the ranks must be ended. Asked after each event; makes `fd` unreadable
  // A rank has failed, and the others are about to be ended.
  std::function<void()> on_failing = [] {};
  // This process has received this signal, and the ranks are about to be ended.
  std::function<void(int)> on_signal = [](int) {};
  std::function<NodeRanks()> ranks;  // what is decided about processes that stay; asked after `must_end`
  // Runs when the slots' states or the port have changed, which the job must know. With kOne it decides at once.
  std::function<void(const NodeSlots& slots, int port)> on_slots;
};

class Attempt {
 public:
  // Everything but `generation` must outlive the object.
  Attempt(const NodeStart& start, const std::vector<std::string>& argv, const LaunchOptions& options,
          SignalRelay* relay, Output* output, EventLog* events, const AttemptControl* control)
      : start_(start),
        argv_(argv),
        options_(options),
        relay_(*relay),
        output_(*output),
        events_(*events),
        watcher_(WatcherOf(options.watcher)),
        control_(*control),
        rank_links_(start, options, control->nodes),
        processes_(options) {}

  // Starts the ranks and blocks until all have ended. Call it once. If it chooses a port, it is not `earlier_port`.
  AttemptResult Run(int earlier_port);

 private:
  // The number of the start of processes that comes now, from 0, in file names and events.
  int number() const { return static_cast<int>(start_.number - 1) + rank_links_.restarts_here(); }

  absl::Status StartAll(int earlier_port);
  absl::Status StartRank(int local_rank);
  void StartSpares();
  void ReportUnasked();
  absl::Status StartRankAgain(int local_rank);
  void ReplaceRank(int local_rank);
  absl::Status WithLastLines(absl::Status failure, int local_rank) const;
  Failure FailureOf(const Outcome& outcome) const;
  bool HoldsEarlyDeath(int i, const Failure& failure);
  void TakeEarlyDeaths();
  void DecideAbout(int slot, const Failure& failure);
  void DoActions();
  void Do(const NodeSlots::Action& action);
  void RecordGeneration(int slot);
  void RecordLeaving();
  void KillLate(int slot);
  void NotifyGivenUp(int slot) const;
  void ReportWhoIsAwaited();
  void EndStalled(int slot);
  std::string NameOf(int slot) const;

  bool Running() const;
  bool IsAwaited() const;
  bool HasEndedRank() const;
  bool MayLearnMore(int64_t deadline) const;
  void WaitForEvent(int64_t deadline);
  void TakeSignals();
  void RecordEnds();
  void RecordSignal(int signal);
  void RecordEnd(int i);
  void RecordReport(int i);
  void WaitForVerdict();
  void LookForStopped();

  void EndGroups(int signal, absl::Duration grace, const Outcome* cause);
  void KillStopped();
  void RecordWhatOutlived();
  void NameStraysThatOutlived(absl::Status* status) const;
  bool WaitUntilGone(int64_t deadline, int signals_allowed);
  void FinishOutput();

  absl::Status Verdict(bool stopped) const;
  absl::Status LateFailure() const;
  absl::Status Resumable() const;
  AttemptResult Result(const absl::Status& started, bool stopped) const;
  void AskControl();
  void NotifyControl();

  const NodeStart start_;
  const std::vector<std::string>& argv_;
  const LaunchOptions& options_;
  SignalRelay& relay_;
  Output& output_;
  EventLog& events_;
  JobWatcher& watcher_;
  const AttemptControl& control_;
  RankLinks rank_links_;
  std::optional<RankStarter> starter_;
  absl::Status broken_;    // why the ranks cannot go on, although none has failed
  bool must_end_ = false;  // said by control_
  int master_port_ = 0;
  RankProcesses processes_;
  std::vector<Outcome> outcomes_;  // one for each of processes_
  EarlyDeaths early_deaths_;
  std::optional<bool> may_stay_;     // starter_->MayStay(), once it was asked
  int64_t generation_of_ranks_ = 0;  // the last one that has been told
  // When ReportWhoIsAwaited() is due, and why members must leave their generation.
  int64_t tell_at_ = kNever;
  std::string leaving_because_;
  int64_t unasked_at_ = kNever;  // when ReportUnasked() is due
  int64_t told_to_end_ns_ = 0;
  int stopped_looks_ = 0;  // how often in succession all running ranks were stopped
  int stop_signal_ = 0;    // the first signal that this process got
  int signals_seen_ = 0;
  std::string not_ended_;    // names the strays that SIGKILL did not end
  absl::Duration patience_;  // how long the ranks had before SIGKILL
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_ATTEMPT_H_
