#include "lockstep/launch/status/job_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/status/job_status_json.h"
#include "lockstep/launch/status/status_folder.h"

namespace lockstep::launch {
namespace {

constexpr size_t kLongestAnswer = 16 << 20;
constexpr absl::Duration kRetryPause = absl::Milliseconds(10);

std::string Who(pid_t pid) { return absl::StrCat("the launcher with pid ", pid); }

absl::Status NoAnswer(pid_t pid, absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat(Who(pid), " does not answer within ", absl::FormatDuration(timeout), "; is it stopped?"));
}

absl::Status IsGone(pid_t pid) { return absl::NotFoundError(absl::StrCat(Who(pid), " is gone")); }

// The launcher has ended, or had no patience among many clients.
absl::Status ClosedEarly(pid_t pid) { return absl::AbortedError(absl::StrCat(Who(pid), " does not listen")); }

absl::Status CannotAsk(pid_t pid) {
  return absl::UnavailableError(absl::StrCat(Who(pid), " cannot be asked: ", strerror(errno)));
}

// If many others wait for the launcher, tries again.
absl::StatusOr<UniqueFd> Connect(const UniqueFd& folder, pid_t pid, int64_t deadline_ns, absl::Duration timeout) {
  for (;;) {
    UniqueFd fd = ConnectTo(PathIn(folder, SocketName(pid)));
    if (fd.valid()) return fd;
    if (errno == ENOENT || errno == ECONNREFUSED) return IsGone(pid);
    if (errno != EAGAIN) return CannotAsk(pid);
    if (MonotonicNanos() >= deadline_ns) return NoAnswer(pid, timeout);
    absl::SleepFor(kRetryPause);
  }
}

absl::Status CheckUser(const UniqueFd& fd, pid_t pid) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return CannotAsk(pid);
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("user ", peer.uid, " listens at the socket of ", Who(pid)));
}

// The answer ends where the launcher closes the connection.
absl::StatusOr<std::string> ReadAnswer(const UniqueFd& fd, pid_t pid, int64_t deadline_ns, absl::Duration timeout) {
  std::string answer;
  char buffer[65536];
  while (answer.size() < kLongestAnswer) {
    pollfd ready = {fd.get(), POLLIN, 0};
    if (poll(&ready, 1, PollTimeout(deadline_ns)) == 0) return NoAnswer(pid, timeout);
    const ssize_t read = recv(fd.get(), buffer, sizeof(buffer), 0);
    if (read < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (read <= 0) break;
    answer.append(buffer, read);
  }
  if (answer.empty() || answer.back() != '\n') return ClosedEarly(pid);
  answer.pop_back();
  return answer;
}

absl::StatusOr<std::string> AskOnce(const UniqueFd& folder, pid_t pid, const std::string& line, int64_t deadline_ns,
                                    absl::Duration timeout) {
  LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd fd, Connect(folder, pid, deadline_ns, timeout));
  LOCKSTEP_RETURN_IF_ERROR(CheckUser(fd, pid));
  const std::string text = absl::StrCat(line, "\n");  // far less than the socket's buffer
  if (send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) != text.size()) return ClosedEarly(pid);
  return ReadAnswer(fd, pid, deadline_ns, timeout);
}

}  // namespace

absl::StatusOr<std::string> AskLauncher(const std::string& folder, pid_t pid, const std::string& line,
                                        absl::Duration timeout) {
  const int64_t deadline_ns = After(timeout);
  const absl::StatusOr<UniqueFd> open = OpenStatusFolder(folder, /*create=*/false);
  if (absl::IsNotFound(open.status())) return IsGone(pid);
  LOCKSTEP_RETURN_IF_ERROR(open.status());
  for (;;) {
    absl::StatusOr<std::string> answer = AskOnce(*open, pid, line, deadline_ns, timeout);
    if (!absl::IsAborted(answer.status()) || MonotonicNanos() >= deadline_ns) return answer;
    absl::SleepFor(kRetryPause);
  }
}

RunningJob LookAtJob(const std::string& folder, pid_t pid) {
  RunningJob job;
  job.folder = folder;
  job.pid = pid;
  const absl::StatusOr<std::string> text = AskLauncher(folder, pid, "status");
  if (text.ok()) {
    job.text = *text;
    job.status = DecodeJobStatus(*text);
  } else {
    job.status = text.status();
  }
  return job;
}

absl::StatusOr<std::vector<RunningJob>> FindJobs(const std::string& name) {
  absl::Status problem;
  std::vector<std::future<RunningJob>> asked;
  for (const std::string& folder : StatusFolders()) {
    const absl::StatusOr<UniqueFd> open = OpenStatusFolder(folder, /*create=*/false);
    if (!open.ok()) {
      if (!absl::IsNotFound(open.status())) problem = open.status();
      continue;
    }
    RemoveStaleSockets(*open);
    const std::vector<pid_t> pids = SocketsIn(*open);
    for (const pid_t pid : pids) {
      if (absl::StrCat(pid) != name) continue;
      RunningJob job = LookAtJob(folder, pid);
      if (!absl::IsNotFound(job.status.status())) return std::vector<RunningJob>{std::move(job)};
    }
    for (const pid_t pid : pids) asked.push_back(std::async(std::launch::async, LookAtJob, folder, pid));
  }
  std::vector<RunningJob> jobs;
  for (std::future<RunningJob>& answer : asked) {
    RunningJob job = answer.get();
    if (!absl::IsNotFound(job.status.status())) jobs.push_back(std::move(job));
  }
  if (jobs.empty() && !problem.ok()) return problem;
  return jobs;
}

std::vector<RunningJob> JobsNamed(const std::string& name, const std::vector<RunningJob>& jobs) {
  std::vector<RunningJob> named;
  for (const RunningJob& job : jobs) {
    const bool has_id = job.status.ok() && job.status->job_id == name;
    if (name.empty() || absl::StrCat(job.pid) == name || has_id) named.push_back(job);
  }
  return named;
}

}  // namespace lockstep::launch
