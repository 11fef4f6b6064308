#include "lockstep/launch/link/agent_link.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/link/link_message.h"

namespace lockstep::launch {

namespace {

// How long Finish() and EndJob() wait for a launcher that does not read.
constexpr absl::Duration kLastWordsPatience = absl::Seconds(10);
// Between two reports of steps, so that they cost neither side anything.
constexpr absl::Duration kReportPause = absl::Milliseconds(100);

absl::Status LauncherEnded() { return absl::UnavailableError("the launcher has ended"); }

absl::Status Check(const JoinOptions& options) {
  if (options.min_ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("AgentLink::Join: min_ranks must be at least 1, but is ", options.min_ranks));
  }
  if (options.max_ranks != 0 && options.max_ranks < options.min_ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("AgentLink::Join: max_ranks must be 0, or at least min_ranks, which is ", options.min_ranks,
                     ", but is ", options.max_ranks));
  }
  if (options.leave_timeout < absl::ZeroDuration() || options.timeout < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("AgentLink::Join: leave_timeout and timeout must not be negative");
  }
  // Otherwise the ranks that are left give up before one that is stuck is killed.
  if (options.timeout < options.leave_timeout) {
    return absl::InvalidArgumentError(absl::StrCat("AgentLink::Join: timeout must be at least leave_timeout, which is ",
                                                   absl::FormatDuration(options.leave_timeout), ", but is ",
                                                   absl::FormatDuration(options.timeout)));
  }
  return absl::OkStatus();
}

}  // namespace

struct AgentLink::Steps {
  absl::Mutex mutex;
  int64_t next_ns = 0;  // MonotonicNanos() before which none is sent
};

bool AgentLink::IsOffered() { return getenv(kLinkVariable) != nullptr; }

absl::StatusOr<std::unique_ptr<AgentLink>> AgentLink::Open() {
  const char* const variable = getenv(kLinkVariable);
  int number = -1;
  if (!variable || !absl::SimpleAtoi(variable, &number) || fcntl(number, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "AgentLink::Open: ", kLinkVariable, variable ? absl::StrCat(" = ", variable) : " is not set",
        // RankStarter::MayStay() finds these words in the program's file.
        ": this process was not started by Lockstep's launch (launch --standalone --nproc_per_node=4 PROGRAM), or the "
        "socket is taken already"));
  }
  unsetenv(kLinkVariable);
  UniqueFd fd(number);
  RankMessage stays;
  stays.kind = RankMessage::Kind::kStays;
  SendPacket(fd.get(), Encode(stays)).IgnoreError();  // Join() says so too
  return std::unique_ptr<AgentLink>(new AgentLink(std::move(fd)));
}

AgentLink::AgentLink(UniqueFd fd) : fd_(std::move(fd)), steps_(std::make_unique<Steps>()) {}

AgentLink::~AgentLink() = default;

// Waits while the launcher does not read.
absl::Status AgentLink::Send(const std::string& text, int64_t deadline) {
  for (;;) {
    const absl::Status sent = SendPacket(fd_.get(), text);
    if (absl::IsUnavailable(sent)) return LauncherEnded();
    if (sent.ok()) return sent;
    if (MonotonicNanos() >= deadline) return absl::DeadlineExceededError("AgentLink: the launcher does not read");
    pollfd fd = {fd_.get(), POLLOUT, 0};
    poll(&fd, 1, 100);
  }
}

// Takes note of all messages that have come.
absl::Status AgentLink::Read() {
  for (;;) {
    absl::StatusOr<Packet> packet = ReceivePacket(fd_.get());
    if (!packet.ok()) return LauncherEnded();
    if (packet->text.empty()) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(LauncherMessage message, DecodeLauncherMessage(packet->text));
    if (message.kind == LauncherMessage::Kind::kGeneration) {
      next_ = std::move(message.generation);
      next_.listen_fd = std::move(packet->passed);
      joined_ = true;
      order_ = Order::kGoOn;
      reason_.clear();
    } else if (message.generation.number == (joined_ ? next_.number : generation_)) {
      order_ = message.kind == LauncherMessage::Kind::kRegroupNow ? Order::kRegroupNow : Order::kRegroupAfterStep;
      reason_ = message.generation.reason;
    }
  }
}

absl::StatusOr<RankGeneration> AgentLink::Join(const JoinOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  const int64_t deadline = After(options.timeout);
  RankMessage ready;
  ready.left = generation_;
  ready.join = options;
  LOCKSTEP_RETURN_IF_ERROR(Send(Encode(ready), deadline));
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(Read());
    if (joined_) break;
    if (MonotonicNanos() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("AgentLink::Join: no generation after generation ", generation_,
                                                      " within ", absl::FormatDuration(options.timeout)));
    }
    pollfd fd = {fd_.get(), POLLIN, 0};
    poll(&fd, 1, PollTimeout(deadline));
  }
  joined_ = false;
  generation_ = next_.number;
  RankGeneration generation = std::exchange(next_, RankGeneration());
  MutexLock lock(steps_->mutex);
  steps_->next_ns = 0;
  return generation;
}

AgentLink::Order AgentLink::order() {
  if (const absl::Status status = Read(); !status.ok()) {
    order_ = Order::kRegroupNow;
    reason_ = std::string(status.message());
  }
  return order_;
}

void AgentLink::ReportStep(int64_t step) {
  const int64_t now = MonotonicNanos();
  {
    MutexLock lock(steps_->mutex);
    if (now < steps_->next_ns) return;
    steps_->next_ns = After(now, kReportPause);
  }
  RankMessage progress;
  progress.kind = RankMessage::Kind::kProgress;
  progress.step = step;
  SendPacket(fd_.get(), Encode(progress)).IgnoreError();  // a later one says as much
}

void AgentLink::ReportStall(const std::string& why, int rank) {
  RankMessage stall;
  stall.kind = RankMessage::Kind::kStalls;
  stall.step = rank;
  stall.join.reason = why;
  SendPacket(fd_.get(), Encode(stall)).IgnoreError();  // a later one says as much
}

void AgentLink::EndJob(const std::string& reason) {
  RankMessage end;
  end.kind = RankMessage::Kind::kEndsJob;
  end.join.reason = reason;
  SendLastWords(end);
}

void AgentLink::ReportFailure(const StepFailure& failure) {
  RankMessage fails;
  fails.kind = RankMessage::Kind::kFails;
  fails.join.failure = failure;
  SendLastWords(fails);
}

void AgentLink::ReportUnfit() {
  RankMessage unfit;
  unfit.kind = RankMessage::Kind::kUnfit;
  SendLastWords(unfit);
}

void AgentLink::Finish(bool all_have) {
  RankMessage finished;
  finished.kind = RankMessage::Kind::kFinished;
  finished.all = all_have;
  SendLastWords(finished);
}

// If the launcher has ended, so will this rank.
void AgentLink::SendLastWords(const RankMessage& message) {
  Send(Encode(message), After(kLastWordsPatience)).IgnoreError();
}

}  // namespace lockstep::launch
