// The launch program's answers to `launch status`, `launch top` and `launch drain`.
//
// A client says one line and gets one line of JSON:
//
//   status        a JobStatus
//   drain         {"ok":"..."}, and this process gets SIGTERM
//   drain HOST    {"ok":"..."} or {"error":"..."}
//   resize 2 4    the same

#ifndef LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_SERVICE_H_
#define LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_SERVICE_H_

#include <stdint.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tools/launch/internal/report_file.h"
#include "lockstep/tools/launch/status/internal/job_status.h"
#include "lockstep/tools/launch/status/internal/job_watcher.h"
#include "lockstep/tools/launch/status/internal/local_server.h"
#include "lockstep/tools/launch/status/internal/status_board.h"

namespace lockstep::launch::internal {

class StatusService : public JobWatcher {
 public:
  // `job` has what does not change. If there can be no socket, `on_notice` says why, and nobody is answered.
  StatusService(JobStatus job, std::function<void(const std::string&)> on_notice);

  // Listens from the first call on: a disk may need milliseconds for a socket, and then the ranks run already.
  int fd() override;
  void Serve() override;
  void NotePhase(JobStatus::Phase phase) override { board_.NotePhase(phase, MonotonicNanos()); }
  void NoteHosts(std::vector<HostStatus> hosts) override { board_.NoteHosts(std::move(hosts)); }
  void NoteReady(std::optional<int> hosts) override { board_.NoteReady(hosts); }
  void NoteTrouble(const std::string& trouble) override { board_.NoteTrouble(trouble); }
  void NoteLimits(int min_nodes, int max_nodes) override { board_.NoteLimits(min_nodes, max_nodes); }
  void NoteGeneration(const Generation& generation, int ranks, int spares) override {
    board_.NoteGeneration(generation, ranks, spares, MonotonicNanos());
  }
  void NoteRegroup(int64_t generation, int restarts, const std::vector<int>& ranks) override {
    board_.NoteRegroup(generation, restarts, ranks);
  }
  void NoteSpare(int64_t generation, int restarts) override {
    board_.NoteSpare(generation, restarts, MonotonicNanos());
  }
  void NoteStart(const RankFailure& rank) override { board_.NoteStart(rank, MonotonicNanos()); }
  void NoteEnd(const RankFailure& rank) override { board_.NoteEnd(rank, MonotonicNanos()); }
  void NoteWaiting(int local_rank, bool waiting) override { board_.NoteWaiting(local_rank, waiting, MonotonicNanos()); }
  void NoteStall(const std::string& why) override { board_.NoteStall(why, MonotonicNanos()); }
  void NoteStep(int local_rank, int64_t step, int64_t now_ns) override { board_.NoteStep(local_rank, step, now_ns); }
  void Offer(JobRequests requests) override { requests_ = std::move(requests); }

 private:
  std::string Answer(const std::string& line);
  std::string DrainThisNode();
  std::string Drain(const std::string& host);
  std::string Resize(absl::string_view limits);
  void Listen();

  const std::string host_;
  const pid_t pid_;
  const std::function<void(const std::string&)> on_notice_;
  StatusBoard board_;
  JobRequests requests_;
  bool drained_ = false;
  bool has_tried_ = false;  // to listen
  std::unique_ptr<LocalServer> server_;
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_STATUS_INTERNAL_STATUS_SERVICE_H_
