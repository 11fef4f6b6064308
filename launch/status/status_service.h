// The launch program's answers to `launch status`, `launch top` and `launch drain`.
//
// A client says one line and gets one line of JSON:
//
//   status        a JobStatus
//   drain         {"ok":"..."}, and this process gets SIGTERM
//   drain HOST    {"ok":"..."} or {"error":"..."}
//   resize 2 4    the same

#ifndef LOCKSTEP_LAUNCH_STATUS_STATUS_SERVICE_H_
#define LOCKSTEP_LAUNCH_STATUS_STATUS_SERVICE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lockstep/launch/status/job_status.h"
#include "lockstep/launch/status/job_watcher.h"
#include "lockstep/launch/status/local_server.h"
#include "lockstep/launch/status/status_board.h"

namespace lockstep::launch {

class StatusService : public StatusBoard {
 public:
  // `job` has what does not change. If there can be no socket, `on_notice` says why, and nobody is answered.
  StatusService(const JobStatus& job, std::function<void(const std::string&)> on_notice);

  // Listens from the first call on: a disk may need milliseconds for a socket, and then the ranks run already.
  int fd() override;
  void Serve() override;
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
  JobRequests requests_;
  bool drained_ = false;
  bool has_tried_ = false;  // to listen
  std::unique_ptr<LocalServer> server_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_STATUS_SERVICE_H_
