#include "lockstep/launch/rendezvous/tcp/tcp_guest.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/posix/socket_address.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/launch/rendezvous/tcp/protocol.h"

namespace lockstep::launch {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
// Within which a connection must be made, and the host must have said its name.
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kFarewellTimeout = absl::Seconds(1);

// A socket that connects to the first address of the endpoint. The reason if there is none.
absl::StatusOr<UniqueFd> BeginToConnect(const TcpOptions& options) {
  const auto found = Resolve(options.host, options.port);
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  const SocketAddress& address = found->front();
  UniqueFd socket = AboveStdio(UniqueFd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket.valid()) return absl::UnavailableError(strerror(errno));
  TuneConnection(socket.get());
  if (connect(socket.get(), address.get(), address.size) == 0 || errno == EINPROGRESS) return socket;
  return absl::UnavailableError(strerror(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpGuest>> TcpGuest::Start(const TcpOptions& options, const crypto::JobSecret& secret,
                                                          bool port_is_taken) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<SharedView> view, SharedView::Create());
  LOCKSTEP_ASSIGN_OR_RETURN(Event wake, Event::Create("launch: no eventfd"));
  std::unique_ptr<TcpGuest> guest(new TcpGuest(options, secret, port_is_taken, std::move(view), std::move(wake)));
  LOCKSTEP_ASSIGN_OR_RETURN(guest->thread_, StartThread("the rendezvous' thread", [raw = guest.get()] { raw->Run(); }));
  return guest;
}

TcpGuest::TcpGuest(const TcpOptions& options, const crypto::JobSecret& secret, bool port_is_taken,
                   std::unique_ptr<SharedView> view, Event wake)
    : options_(options),
      secret_(secret),
      port_is_taken_(port_is_taken),
      endpoint_(WithPort(options.host, absl::StrCat(options.port))),
      view_(std::move(view)),
      wake_(std::move(wake)),
      began_ns_(MonotonicNanos()),
      heard_ns_(began_ns_),
      pause_(kFirstPause) {}

TcpGuest::~TcpGuest() { Leave(absl::ZeroDuration()); }

void TcpGuest::Post(absl::string_view text) {
  {
    MutexLock lock(mutex_);
    text_ = std::string(text);
    ++posts_;
  }
  wake_.Set();
}

void TcpGuest::Leave(absl::Duration timeout) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    leave_deadline_ns_ = After(std::min(timeout, kFarewellTimeout));
  }
  wake_.Set();
  thread_.join();
}

void TcpGuest::Run() {
  while (!Stops()) {
    if (!stream_ && MonotonicNanos() >= next_connect_ns_) Connect();
    SendPost();
    Wait();
    if (stream_ && !stream_->end().ok()) RecordEnd();
    CheckDeadlines();
    ShowReach();
  }
  if (!stream_ || !welcome_) return;
  SendPost();
  stream_->Send(absl::string_view(&kFarewell, 1));
  int64_t deadline;
  {
    MutexLock lock(mutex_);
    deadline = leave_deadline_ns_;
  }
  for (stream_->Serve(); stream_->unsent_bytes() > 0 && stream_->end().ok() && MonotonicNanos() < deadline;) {
    pollfd fd = {stream_->fd(), POLLOUT, 0};
    poll(&fd, 1, PollTimeout(deadline));
    stream_->Serve();
  }
}

bool TcpGuest::Stops() {
  MutexLock lock(mutex_);
  return stop_ || is_lost_;
}

void TcpGuest::Connect() {
  hello_sent_ = welcome_ = false;
  connected_ns_ = MonotonicNanos();
  absl::StatusOr<UniqueFd> socket = BeginToConnect(options_);
  if (socket.ok()) {
    stream_.emplace(*std::move(socket), SealedStream::Role::kGuest, secret_);
    stream_->set_max_message(kMaxDecision);
    return;
  }
  problem_ = std::string(socket.status().message());
  next_connect_ns_ = After(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void TcpGuest::Wait() {
  pollfd fds[] = {{wake_.fd(), POLLIN, 0}, {stream_ ? stream_->fd() : -1, POLLIN, 0}};
  if (stream_) fds[1].events = stream_->events();
  poll(fds, 2, PollTimeout(NextDeadline()));
  if (fds[0].revents != 0) wake_.Clear();
  if (stream_ && fds[1].revents != 0) {
    for (const std::string& message : stream_->Serve()) Take(message);
  }
}

int64_t TcpGuest::NextDeadline() const {
  int64_t next =
      was_welcome_ ? After(heard_ns_, GuestPatience(options_.time_to_live)) : After(began_ns_, options_.join_timeout);
  if (welcome_) next = std::min(next, After(heard_ns_, options_.time_to_live));
  next = std::min(next, After(ended_ns_, kGuestTriesToReturn));
  if (!stream_) {
    next = std::min(next, next_connect_ns_);
  } else if (welcome_) {
    next = std::min(next, next_beat_ns_);
  } else {
    next = std::min(next, After(connected_ns_, kConnectTimeout));
  }
  return next;
}

void TcpGuest::Take(absl::string_view message) {
  if (message.empty()) return;
  heard_ns_ = MonotonicNanos();
  const char type = message[0];
  message.remove_prefix(1);
  if (type == kWelcome) {
    welcome_ = was_welcome_ = true;
    pause_ = kFirstPause;
    posted_ = 0;
    ended_ns_ = kNever;
    is_away_ = false;
    ShowReach();
  } else if (type == kDecision) {
    view_->SetDecision(std::string(message));
  }
}

// Says what is due: hello, the latest post, a beat.
void TcpGuest::SendPost() {
  if (!stream_ || !stream_->open() || !stream_->end().ok()) return;
  if (!hello_sent_) {
    hello_sent_ = true;
    stream_->Send(absl::StrCat(std::string(1, kHello), options_.job_id, "\n", options_.agent_id));
  }
  const int64_t now = MonotonicNanos();
  if (welcome_ && now >= next_beat_ns_) {
    next_beat_ns_ = After(now, BeatInterval(options_.time_to_live));
    if (stream_->unsent_bytes() == 0) stream_->Send(absl::string_view(&kBeat, 1));
  }
  if (welcome_) {
    MutexLock lock(mutex_);
    if (posted_ != posts_) stream_->Send(absl::StrCat(std::string(1, kPost), text_));
    posted_ = posts_;
  }
  for (const std::string& message : stream_->Serve()) Take(message);
}

std::string TcpGuest::Problem() const {
  return absl::StrCat(problem_,
                      port_is_taken_ ? "; this node has that address, but its port was taken by another program" : "");
}

std::optional<Rendezvous::Silence> TcpGuest::SilenceNow() const {
  Silence silence;
  silence.who = absl::StrCat("the launcher at ", endpoint_);
  if (!was_welcome_) {
    silence.what = absl::StrCat("no launcher has answered at ", endpoint_);
    silence.why = Problem();
    silence.since_ns = began_ns_;
    silence.until_ns = After(began_ns_, options_.join_timeout);
    return silence;
  }
  if (!is_away_) return std::nullopt;
  silence.what = absl::StrCat(silence.who, " does not answer");
  silence.why = absl::StrCat("nothing was heard from it for ", absl::FormatDuration(options_.time_to_live));
  silence.since_ns = heard_ns_;
  silence.until_ns = After(heard_ns_, GuestPatience(options_.time_to_live));
  return silence;
}

void TcpGuest::ShowReach() { view_->SetReach({is_away_, was_welcome_, SilenceNow()}); }

void TcpGuest::Drop() {
  stream_.reset();
  welcome_ = false;
  next_connect_ns_ = MonotonicNanos();
}

// An error that waiting cannot mend is final. Otherwise the guest connects again.
void TcpGuest::RecordEnd() {
  const absl::Status end = stream_->end();
  problem_ = std::string(end.message());
  if (welcome_) ended_ns_ = MonotonicNanos();
  Drop();
  next_connect_ns_ = After(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  if (absl::IsPermissionDenied(end) || absl::IsInvalidArgument(end)) {
    const bool has_no_secret =
        absl::IsPermissionDenied(end) && !options_.secret && absl::StrContains(problem_, "secret");
    Lose(absl::Status(end.code(), absl::StrCat("cannot join the job at ", endpoint_, ": ",
                                               absl::IsInvalidArgument(end) ? Problem() : problem_,
                                               has_no_secret ? "; this node has none" : "")));
  }
}

void TcpGuest::CheckDeadlines() {
  const int64_t now = MonotonicNanos();
  if (stream_ && !welcome_ && now >= After(connected_ns_, kConnectTimeout)) {
    problem_ = "what listens there does not answer as a launcher";
    Drop();
  }
  // The kernel would send the next bytes of a connection that lost some only after a pause of seconds.
  if (welcome_ && now >= After(heard_ns_, options_.time_to_live)) {
    is_away_ = true;
    Drop();
  }
  if (!was_welcome_) {
    if (now < After(began_ns_, options_.join_timeout)) return;
    Lose(absl::UnavailableError(absl::StrCat("no launcher answered at ", endpoint_, " within ",
                                             absl::FormatDuration(options_.join_timeout), ": ", Problem())));
  } else if (now >= After(heard_ns_, GuestPatience(options_.time_to_live))) {
    Lose(absl::UnavailableError(absl::StrCat("the launcher at ", endpoint_, " has not been heard from for ",
                                             absl::FormatDuration(GuestPatience(options_.time_to_live)))));
  } else if (now >= After(ended_ns_, kGuestTriesToReturn)) {
    Lose(absl::UnavailableError(absl::StrCat("the launcher at ", endpoint_, " is gone: ", problem_)));
  }
}

void TcpGuest::Lose(const absl::Status& status) {
  is_lost_ = true;
  view_->SetError(status);
}

}  // namespace lockstep::launch
