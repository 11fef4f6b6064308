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
  void OnPhase(JobStatus::Phase phase) override;
  void OnHosts(std::vector<HostStatus> hosts) override { job_.hosts = std::move(hosts); }
  void OnReady(std::optional<int> hosts) override { job_.ready = hosts; }
  void OnTrouble(const std::string& trouble) override { job_.trouble = trouble; }
  void OnLimits(int min_nodes, int max_nodes) override;
  void OnGeneration(const NodeStart& start, int ranks, int spares) override;
  void OnRegroup(int64_t generation, int restarts, const std::vector<int>& ranks) override;
  void OnSpare(int64_t generation, int restarts) override;
  void OnStart(const RankFailure& rank) override;
  void OnEnd(const RankFailure& rank) override;
  void OnWaiting(int local_rank, bool waiting) override;
  void OnStep(int local_rank, int64_t step, int64_t now_ns) override;
  void OnStall(const std::string& why) override;

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
