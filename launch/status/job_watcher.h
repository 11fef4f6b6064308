// Hears what happens to a job, and answers people who ask about it. This class itself does neither.

#ifndef LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_WATCHER_H_
#define LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_WATCHER_H_

#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/tools/launch/failure.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/status/internal/job_status.h"

namespace lockstep::launch::internal {

// What people can ask of a job whose nodes find each other. The answer is one line for them.
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

  // As in StatusBoard.
  virtual void NotePhase(JobStatus::Phase /*phase*/) {}
  virtual void NoteHosts(std::vector<HostStatus> /*hosts*/) {}  // NOLINT: who overrides it keeps them
  virtual void NoteReady(std::optional<int> /*hosts*/) {}
  virtual void NoteTrouble(const std::string& /*trouble*/) {}
  virtual void NoteLimits(int /*min_nodes*/, int /*max_nodes*/) {}
  virtual void NoteGeneration(const Generation& /*generation*/, int /*ranks*/, int /*spares*/) {}
  virtual void NoteRegroup(int64_t /*generation*/, int /*restarts*/, const std::vector<int>& /*ranks*/) {}
  virtual void NoteSpare(int64_t /*generation*/, int /*restarts*/) {}
  virtual void NoteStart(const RankFailure& /*rank*/) {}
  virtual void NoteEnd(const RankFailure& /*rank*/) {}
  virtual void NoteWaiting(int /*local_rank*/, bool /*waiting*/) {}
  virtual void NoteStall(const std::string& /*why*/) {}
  virtual void NoteStep(int /*local_rank*/, int64_t /*step*/, int64_t /*now_ns*/) {}

  // From now on people can ask for this. Serve() calls the functions.
  virtual void Offer(JobRequests /*requests*/) {}  // NOLINT: the same
};

// `watcher`, or one that does nothing if it is null.
inline JobWatcher& WatcherOf(JobWatcher* watcher) {
  static JobWatcher nobody;
  return watcher ? *watcher : nobody;
}

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_JOB_WATCHER_H_
