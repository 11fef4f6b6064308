#include "lockstep/tools/launch/status/internal/status_service.h"

#include <signal.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/printable.h"
#include "lockstep/tools/launch/status/internal/status_folder.h"

namespace lockstep::launch::internal {
namespace {

std::string Reply(absl::string_view key, absl::string_view text) {
  return absl::StrCat("{\"", key, "\":", JsonString(Printable(text)), "}");
}

std::string Reply(const absl::StatusOr<std::string>& answer) {
  return answer.ok() ? Reply("ok", *answer) : Reply("error", answer.status().message());
}

}  // namespace

StatusService::StatusService(JobStatus job, std::function<void(const std::string&)> on_notice)
    : host_(job.host), pid_(job.pid), on_notice_(std::move(on_notice)), board_(std::move(job), MonotonicNanos()) {}

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
  if (line == "status") return EncodeJobStatus(board_.Status(MonotonicNanos()));
  if (line == "drain") return DrainThisNode();
  if (absl::ConsumePrefix(&rest, "drain ")) return Drain(std::string(rest));
  if (absl::ConsumePrefix(&rest, "resize ")) return Resize(rest);
  return Reply(absl::InvalidArgumentError(absl::StrCat("unknown request: ", line)));
}

std::string StatusService::Drain(const std::string& host) {
  if (requests_.drain) return Reply(requests_.drain(host));
  if (host == host_) return DrainThisNode();
  return Reply(absl::FailedPreconditionError(
      "the nodes of this job do not find each other, so each node can only be drained on its host"));
}

std::string StatusService::Resize(absl::string_view limits) {
  const std::vector<std::string> numbers = absl::StrSplit(limits, ' ');
  int min_nodes = 0, max_nodes = 0;
  const bool is_readable = numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &min_nodes) &&
                           absl::SimpleAtoi(numbers[1], &max_nodes) && min_nodes > 0 && min_nodes <= max_nodes;
  if (!is_readable) return Reply(absl::InvalidArgumentError(absl::StrCat("unknown limits: ", limits)));
  if (requests_.resize) return Reply(requests_.resize(min_nodes, max_nodes));
  return Reply(absl::FailedPreconditionError("the nodes of this job do not find each other, so their number is fixed"));
}

// A second signal would mean that there is no time.
std::string StatusService::DrainThisNode() {
  if (!drained_ && !(requests_.drain_this && requests_.drain_this())) kill(getpid(), SIGTERM);
  drained_ = true;
  return Reply("ok", absl::StrCat("host ", host_, " leaves the job"));
}

}  // namespace lockstep::launch::internal
