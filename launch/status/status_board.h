// Puts a launcher's facts about its job together for people. Pure.

#ifndef LOCKSTEP_LAUNCH_STATUS_STATUS_BOARD_H_
#define LOCKSTEP_LAUNCH_STATUS_STATUS_BOARD_H_

#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/job/node_start.h"
#include "lockstep/launch/report/rank_failure.h"
#include "lockstep/launch/status/job_status.h"
#include "lockstep/launch/status/job_watcher.h"
#include "lockstep/launch/status/step_rate.h"

namespace lockstep::launch {

class StatusBoard : public JobWatcher {
 public:
  // `job` has what does not change: the id, the host, the pid, the program and when it started. `clock` is
  // MonotonicNanos(), or a test's.
  StatusBoard(JobStatus job, std::function<int64_t()> clock);

  // Notes about a local rank that does not exist have no effect.
  void NotePhase(JobStatus::Phase phase) override;
  void NoteHosts(std::vector<HostStatus> hosts) override { job_.hosts = std::move(hosts); }
  void NoteReady(std::optional<int> hosts) override { job_.ready = hosts; }
  void NoteTrouble(const std::string& trouble) override { job_.trouble = trouble; }
  void NoteLimits(int min_nodes, int max_nodes) override;
  void NoteGeneration(const NodeStart& start, int ranks, int spares) override;
  void NoteRegroup(int64_t generation, int restarts, const std::vector<int>& ranks) override;
  void NoteSpare(int64_t generation, int restarts) override;
  void NoteStart(const RankFailure& rank) override;
  void NoteEnd(const RankFailure& rank) override;
  void NoteWaiting(int local_rank, bool waiting) override;
  void NoteStep(int local_rank, int64_t step, int64_t now_ns) override;
  void NoteStall(const std::string& why) override;

  JobStatus Status() const;

 private:
  struct Rank {
    RankStatus status;
    int64_t since_ns = 0;  // of its state
    StepRate rate;
  };

  Rank* Find(int local_rank);
  void SetState(int local_rank, RankStatus::State state);

  JobStatus job_;  // its ranks are in ranks_
  const std::function<int64_t()> clock_;
  const int64_t started_ns_;
  int64_t phase_since_ns_;
  std::vector<Rank> ranks_;
  std::string stall_;
  int64_t stall_ns_ = 0;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_STATUS_BOARD_H_
