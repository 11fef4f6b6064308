// Hears what happens to a job, and answers people who ask about it. This class itself does neither.

#ifndef LOCKSTEP_LAUNCH_STATUS_JOB_WATCHER_H_
#define LOCKSTEP_LAUNCH_STATUS_JOB_WATCHER_H_

#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/report/rank_failure.h"
#include "lockstep/launch/status/job_status.h"

namespace lockstep::launch {

// The requests that people can make of a job whose nodes find each other. The answer is one line for them.
struct JobRequests {
  std::function<absl::StatusOr<std::string>(const std::string& host)> drain;  // takes the host out of the job
  // Takes this node out of the job between two steps. False: its ranks do not stay, so a signal may end them.
  std::function<bool()> drain_this;
  std::function<absl::StatusOr<std::string>(int min_nodes, int max_nodes)> resize;
};

// One thread calls it: the one that runs the ranks.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;

  // Readable when Serve() has something to do; -1: never. Serve() does not block.
  virtual int fd() { return -1; }
  virtual void Serve() {}

  virtual void OnPhase(JobStatus::Phase /*phase*/) {}
  virtual void OnHosts(std::vector<HostStatus> /*hosts*/) {}  // NOLINT: who overrides it keeps them
  // How many hosts are ready while the job forms, if this launcher knows.
  virtual void OnReady(std::optional<int> /*hosts*/) {}
  virtual void OnTrouble(const std::string& /*trouble*/) {}
  virtual void OnLimits(int /*min_nodes*/, int /*max_nodes*/) {}

  // The ranks of this node are about to start.
  virtual void OnGeneration(const NodeStart& /*generation*/, int /*ranks*/, int /*spares*/) {}
  // Processes that stay (launch/link) make a new generation: ranks[i] is the rank of the process of local rank i, or
  // -1.
  virtual void OnRegroup(int64_t /*generation*/, int /*restarts*/, const std::vector<int>& /*ranks*/) {}
  // Other nodes run the ranks of this generation, and this node none.
  virtual void OnSpare(int64_t /*generation*/, int /*restarts*/) {}

  virtual void OnStart(const RankFailure& /*rank*/) {}
  virtual void OnEnd(const RankFailure& /*rank*/) {}
  // The rank waits, or goes on.
  virtual void OnWaiting(int /*local_rank*/, bool /*waiting*/) {}
  // `now_ns` is MonotonicNanos().
  virtual void OnStep(int /*local_rank*/, int64_t /*step*/, int64_t /*now_ns*/) {}
  // A rank says why it waits for long. It says so again while it waits.
  virtual void OnStall(const std::string& /*why*/) {}

  // From now on people can ask for this. Serve() calls the functions.
  virtual void Offer(JobRequests /*requests*/) {}  // NOLINT: the same
};

// `watcher`, or one that does nothing if it is null.
inline JobWatcher& WatcherOf(JobWatcher* watcher) {
  static JobWatcher nobody;
  return watcher ? *watcher : nobody;
}

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_JOB_WATCHER_H_
