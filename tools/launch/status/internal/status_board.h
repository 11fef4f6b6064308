// What a launcher knows about its job, put together for people. Knows neither sockets, clocks nor processes: the times
// are MonotonicNanos() of the caller, which never decrease.

#ifndef LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_BOARD_H_
#define LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_BOARD_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tools/launch/failure.h"
#include "lockstep/tools/launch/internal/generation.h"
#include "lockstep/tools/launch/status/internal/job_status.h"
#include "lockstep/tools/launch/status/internal/step_rate.h"

namespace lockstep::launch::internal {

class StatusBoard {
 public:
  // `job` has what does not change: the id, the host, the pid, the program and when it started.
  StatusBoard(JobStatus job, int64_t now_ns);

  void NotePhase(JobStatus::Phase phase, int64_t now_ns);
  void NoteHosts(std::vector<HostStatus> hosts) { job_.hosts = std::move(hosts); }

  // How many hosts are ready while the job forms, if this launcher knows.
  void NoteReady(std::optional<int> hosts) { job_.ready = hosts; }

  void NoteTrouble(const std::string& trouble) { job_.trouble = trouble; }

  void NoteLimits(int min_nodes, int max_nodes) {
    job_.min_nodes = min_nodes;
    job_.max_nodes = max_nodes;
  }

  // The ranks of this node are about to start. Forgets all about the ranks before.
  void NoteGeneration(const Generation& generation, int ranks, int spares, int64_t now_ns);

  // Processes that stay (agent_link) make a new generation: ranks[i] is the rank of the process of local rank i,
  // or -1.
  void NoteRegroup(int64_t generation, int restarts, const std::vector<int>& ranks);

  // Other nodes run the ranks of this generation, and this node none.
  void NoteSpare(int64_t generation, int restarts, int64_t now_ns);

  // The others have no effect if there is no such local rank.
  void NoteStart(const RankFailure& rank, int64_t now_ns);
  void NoteEnd(const RankFailure& rank, int64_t now_ns);
  // Whether the rank waits, or goes on.
  void NoteWaiting(int local_rank, bool waiting, int64_t now_ns);
  void NoteStep(int local_rank, int64_t step, int64_t now_ns);
  // A rank says why it waits for long. It says so again while it waits.
  void NoteStall(const std::string& why, int64_t now_ns);

  JobStatus Status(int64_t now_ns) const;

 private:
  struct Rank {
    RankStatus status;
    int64_t since_ns = 0;  // of its state
    StepRate rate;
  };

  Rank* Find(int local_rank);
  void SetState(int local_rank, RankStatus::State state, int64_t now_ns);

  JobStatus job_;  // its ranks are in ranks_
  const int64_t started_ns_;
  int64_t phase_since_ns_;
  std::vector<Rank> ranks_;
  std::string stall_;
  int64_t stall_ns_ = 0;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_BOARD_H_
