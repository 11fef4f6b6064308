#include "lockstep/comm/watch/internal/spoke.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/watch/internal/handshake.h"
#include "lockstep/comm/watch/internal/watch_thread.h"
#include "lockstep/comm/watch/internal/wording.h"

namespace lockstep::comm::internal {
namespace {

constexpr auto kFarewellPatience = std::chrono::milliseconds(150);
constexpr auto kFateInterval = std::chrono::milliseconds(5);
// All ranks look at the hub's process when its connection ends. Many of them together look less often and for longer,
// or the process would get no processor to end on.
constexpr auto kFateIntervalOfRank = std::chrono::microseconds(50);
constexpr auto kFatePatienceOfRank = std::chrono::microseconds(100);
// The hub names the missing ranks at the deadline, so a rank waits a little longer for that.
constexpr absl::Duration kVerdictPatience = absl::Milliseconds(300);
constexpr absl::Duration kRetryInterval = absl::Milliseconds(20);

absl::Status LostStatus(const RankIdentity& hub, const std::string& fate, const std::string& how) {
  return absl::UnavailableError(LostText(hub, fate, how));
}

// The fate of a process whose connection has just ended. It takes a moment to become visible.
std::string AwaitFate(const ProcessHandle& process) {
  const Clock::time_point due = Clock::now() + kFatePatience;
  std::string fate = process.Fate();
  while (fate.empty() && Clock::now() < due) {
    std::this_thread::sleep_for(kFateInterval);
    fate = process.Fate();
  }
  return fate;
}

// A rank's side of the handshake.
class Introduction {
 public:
  Introduction(const Endpoint& endpoint, int rank) : token_(endpoint.token), rank_(rank) {}

  // Answers the hub's challenge. False for a frame that a hub that knows the token would not send.
  bool Take(const Frame& frame, Connection& connection) {
    if (proven_) return true;
    if (frame.type == Frame::Type::kChallenge && hello_.empty()) {
      challenge_ = frame.text;
      hello_ = HelloText(token_, challenge_, RandomToken(), rank_);
      connection.Send({Frame::Type::kHello, rank_, 0, -1, 0, hello_});
      return true;
    }
    proven_ =
        frame.type == Frame::Type::kProof && !hello_.empty() && IsProof(frame.text, token_, challenge_, hello_, rank_);
    return proven_;
  }

 private:
  const std::string token_;
  const int rank_;
  std::string challenge_;
  std::string hello_;
  bool proven_ = false;
};

absl::Status NotTheHub(const RankIdentity& hub, const Endpoint& endpoint) {
  const std::string where = endpoint.host.empty() ? endpoint.name : WithPort(endpoint.host, endpoint.name);
  return absl::PermissionDeniedError(
      absl::StrCat("what listens at ", where, " is not ", NameOf(hub), ": it does not know the group's token"));
}

// The frames that the hub sends up to its welcome; none if the connection ends.
absl::StatusOr<std::vector<Frame>> AwaitWelcome(Connection& connection, const Endpoint& endpoint, int rank,
                                                const ProcessHandle& hub, absl::Time deadline,
                                                const std::function<absl::Status()>& interruption) {
  Introduction introduction(endpoint, rank);
  while (absl::Now() < deadline + kVerdictPatience) {
    if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
    pollfd waited = {connection.fd(), POLLIN, 0};
    poll(&waited, 1, 50);
    std::vector<Frame> frames = connection.Receive();
    for (const Frame& frame : frames) {
      if (!introduction.Take(frame, connection)) return NotTheHub(hub.identity(), endpoint);
      if (frame.type == Frame::Type::kWelcome) return frames;
      if (frame.type == Frame::Type::kCause) return absl::Status(static_cast<absl::StatusCode>(frame.code), frame.text);
    }
    if (connection.ended()) return std::vector<Frame>();
  }
  return absl::DeadlineExceededError(SilentText(hub.identity()));
}

}  // namespace

absl::StatusOr<Joined> JoinHub(const Endpoint& endpoint, int rank, const ProcessHandle& hub, absl::Time deadline,
                               const std::function<absl::Status()>& interruption) {
  while (true) {
    if (interruption) LOCKSTEP_RETURN_IF_ERROR(interruption());
    absl::StatusOr<UniqueFd> fd = Connect(NameOf(hub.identity()), endpoint, deadline);
    if (!fd.ok()) {
      const std::string fate = absl::IsUnavailable(fd.status()) ? AwaitFate(hub) : "";
      return fate.empty() ? fd.status() : LostStatus(hub.identity(), fate, "");
    }
    Joined joined{std::make_unique<Connection>(*std::move(fd)), {}};
    LOCKSTEP_ASSIGN_OR_RETURN(joined.frames,
                              AwaitWelcome(*joined.connection, endpoint, rank, hub, deadline, interruption));
    if (!joined.frames.empty()) return joined;
    const std::string fate = AwaitFate(hub);
    if (!fate.empty() || absl::Now() >= deadline) return LostStatus(hub.identity(), fate, joined.connection->end());
    absl::SleepFor(kRetryInterval);
  }
}

Spoke::Spoke(Joined joined, ProcessHandle hub, Participant* participant)
    : hub_(std::move(hub)),
      participant_(participant),
      first_frames_(std::move(joined.frames)),
      connection_(std::move(joined.connection)) {}

absl::Status Spoke::Start() {
  LOCKSTEP_ASSIGN_OR_RETURN(wake_, Event::Create("making the watch's eventfd"));
  LOCKSTEP_ASSIGN_OR_RETURN(thread_, StartWatchThread([this] { Run(); }));
  return absl::OkStatus();
}

Spoke::~Spoke() {
  if (thread_.joinable()) Leave(participant_->Farewell());
}

void Spoke::Send(const Frame& frame) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (connection_) connection_->Send(frame);
  }
  wake_.Set();
}

void Spoke::Leave(const Frame& farewell) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
    leaving_due_ = Clock::now() + kFarewellPatience;
    if (connection_) {
      connection_->Send(farewell);
      connection_->FinishSending();
    }
  }
  wake_.Set();
  thread_.join();
}

void Spoke::Disconnect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_.reset();
}

std::vector<Frame> Spoke::Receive() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!connection_) return {};
  connection_->Flush();
  std::vector<Frame> frames = connection_->Receive();
  if (connection_->ended()) {
    lost_ = connection_->end();
    lost_due_ = Clock::now() + kFatePatience + participant_->ranks().size() * kFatePatienceOfRank;
    connection_.reset();
  }
  return frames;
}

Clock::time_point Spoke::TickLost(Clock::time_point now) {
  if (lost_.empty() || participant_->hub_left()) return Clock::time_point::max();
  const std::string fate = hub_.Fate();
  if (fate.empty() && now < lost_due_) {
    return now + std::max<Clock::duration>(kFateInterval, participant_->ranks().size() * kFateIntervalOfRank);
  }
  const absl::Status cause = LostStatus(hub_.identity(), fate, lost_);
  participant_->Deliver(
      {Frame::Type::kCause, -1, static_cast<int32_t>(cause.code()), -1, 0, std::string(cause.message())});
  lost_.clear();
  return Clock::time_point::max();
}

void Spoke::Run() {
  for (const Frame& frame : first_frames_) participant_->Deliver(frame);
  Clock::time_point due = Clock::now();
  while (true) {
    pollfd waited[2] = {{wake_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};  // -1: ignored
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (leaving_ && (!connection_ || Clock::now() >= leaving_due_)) return;
      if (leaving_) due = std::min(due, leaving_due_);
      if (connection_) waited[1].fd = connection_->fd();
      if (connection_ && !connection_->sent_all()) waited[1].events |= POLLOUT;
    }
    poll(waited, 2, PollTimeout(due));
    if (waited[0].revents) wake_.Clear();
    for (const Frame& frame : Receive()) participant_->Deliver(frame);
    if (participant_->hub_left()) Disconnect();
    const Clock::time_point now = Clock::now();
    due = std::min(TickLost(now), participant_->Tick(now));
  }
}

}  // namespace lockstep::comm::internal
