#include "lockstep/launch/status/status_service.h"

#include <signal.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/status/job_status_json.h"
#include "lockstep/launch/status/status_folder.h"

namespace lockstep::launch {

StatusService::StatusService(const JobStatus& job, std::function<void(const std::string&)> on_notice)
    : StatusBoard(job, MonotonicNanos), host_(job.host), pid_(job.pid), on_notice_(std::move(on_notice)) {}

int StatusService::fd() {
  if (!has_tried_) Listen();
  return server_ ? server_->fd() : -1;
}

void StatusService::Listen() {
  has_tried_ = true;
  auto server = LocalServer::Create(StatusFolder(), pid_, [this](const std::string& line) { return Answer(line); });
  if (server.ok()) {
    server_ = *std::move(server);
  } else if (on_notice_) {
    on_notice_(absl::StrCat("`launch status` will not find this job: ", server.status().message()));
  }
}

void StatusService::Serve() {
  if (server_) server_->Serve();
}

std::string StatusService::Answer(const std::string& line) {
  absl::string_view rest = line;
  if (line == "status") return EncodeJobStatus(Status());
  if (line == "drain") return DrainThisNode();
  if (absl::ConsumePrefix(&rest, "drain ")) return Drain(std::string(rest));
  if (absl::ConsumePrefix(&rest, "resize ")) return Resize(rest);
  return EncodeReply(absl::InvalidArgumentError(absl::StrCat("unknown request: ", line)));
}

std::string StatusService::Drain(const std::string& host) {
  if (requests_.drain) return EncodeReply(requests_.drain(host));
  if (host == host_) return DrainThisNode();
  return EncodeReply(absl::FailedPreconditionError(
      "the nodes of this job do not find each other, so each node can only be drained on its host"));
}

std::string StatusService::Resize(absl::string_view limits) {
  const std::vector<std::string> numbers = absl::StrSplit(limits, ' ');
  int min_nodes = 0, max_nodes = 0;
  const bool is_readable = numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &min_nodes) &&
                           absl::SimpleAtoi(numbers[1], &max_nodes) && min_nodes > 0 && min_nodes <= max_nodes;
  if (!is_readable) return EncodeReply(absl::InvalidArgumentError(absl::StrCat("unknown limits: ", limits)));
  if (requests_.resize) return EncodeReply(requests_.resize(min_nodes, max_nodes));
  return EncodeReply(
      absl::FailedPreconditionError("the nodes of this job do not find each other, so their number is fixed"));
}

// A second signal would mean that there is no time.
std::string StatusService::DrainThisNode() {
  if (!drained_ && !(requests_.drain_this && requests_.drain_this())) kill(getpid(), SIGTERM);
  drained_ = true;
  return EncodeReply(absl::StrCat("host ", host_, " leaves the job"));
}

}  // namespace lockstep::launch
