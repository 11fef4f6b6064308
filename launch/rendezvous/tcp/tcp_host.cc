#include "lockstep/launch/rendezvous/tcp/tcp_host.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/launch/rendezvous/tcp/protocol.h"

namespace lockstep::launch {
namespace {

// A connection that has not said hello by then is a stranger's.
constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
// If that many have not, the oldest is closed for a new one.
constexpr size_t kMostStrangers = 256;
// While the guests together have not taken so many bytes, no other guest gets a decision. A guest that takes none is
// removed after HostPatience().
constexpr size_t kMostUnsentBytes = size_t{16} << 20;
constexpr int kAcceptAtOnce = 64;
// One of many guests has always sent a beat: they are looked at together.
constexpr absl::Duration kPauseForEachGuest = absl::Microseconds(20);
// So many addresses get a line if launchers from there are refused.
constexpr size_t kMostNotices = 100;
// How long no connection is accepted after the process has run out of descriptors.
constexpr absl::Duration kFullPause = absl::Milliseconds(100);

std::string AddressText(const sockaddr_storage& address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (getnameinfo(generic, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "an unknown address";
  return std::string(absl::StripPrefix(text, "::ffff:"));
}

}  // namespace

TcpHost::Guest::Guest(UniqueFd socket, std::string from, const crypto::JobSecret& secret, int64_t now_ns)
    : from(std::move(from)), stream(std::move(socket), SealedStream::Role::kHost, secret), heard_ns(now_ns) {}

absl::StatusOr<std::unique_ptr<TcpHost>> TcpHost::Start(const TcpOptions& options, const crypto::JobSecret& secret,
                                                        UniqueFd listener) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<SharedView> view, SharedView::Create());
  view->SetLeads(true);
  view->SetReach({/*away=*/false, /*met=*/true, std::nullopt});
  LOCKSTEP_ASSIGN_OR_RETURN(Event wake, Event::Create("launch: no eventfd"));
  std::unique_ptr<TcpHost> host(new TcpHost(options, secret, std::move(listener), std::move(view), std::move(wake)));
  LOCKSTEP_ASSIGN_OR_RETURN(host->thread_, StartThread("the rendezvous' thread", [raw = host.get()] { raw->Run(); }));
  return host;
}

TcpHost::TcpHost(const TcpOptions& options, const crypto::JobSecret& secret, UniqueFd listener,
                 std::unique_ptr<SharedView> view, Event wake)
    : options_(options),
      secret_(secret),
      listener_(std::move(listener)),
      view_(std::move(view)),
      wake_(std::move(wake)) {}

TcpHost::~TcpHost() { Leave(absl::ZeroDuration()); }

void TcpHost::Post(absl::string_view text) { view_->SetAgent(options_.agent_id, std::string(text)); }

void TcpHost::Decide(absl::string_view text) {
  view_->SetDecision(std::string(text));
  {
    MutexLock lock(mutex_);
    decision_ = std::string(text);
    ++decisions_;
  }
  wake_.Set();
}

void TcpHost::Leave(absl::Duration timeout) {
  if (!thread_.joinable()) return;
  view_->EraseAgent(options_.agent_id);
  {
    MutexLock lock(mutex_);
    stop_ = true;
    leave_deadline_ns_ = After(timeout);
  }
  wake_.Set();
  thread_.join();
}

// Returns whether this agent leaves, and all others have left, or have had the time for it.
bool TcpHost::Stops() {
  MutexLock lock(mutex_);
  if (!stop_) return false;
  const bool alone =
      std::all_of(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->agent.empty(); });
  return alone || MonotonicNanos() >= leave_deadline_ns_;
}

void TcpHost::Run() {
  std::vector<pollfd> fds;
  while (!Stops()) {
    SendBeats();
    SendDecision();
    const bool accepts = MonotonicNanos() >= full_until_ns_;
    fds = {{wake_.fd(), POLLIN, 0}, {accepts ? listener_.get() : -1, POLLIN, 0}};
    for (const auto& guest : guests_) {
      fds.push_back({guest->ended_ns == 0 ? guest->stream.fd() : -1, guest->stream.events(), 0});
    }
    absl::SleepFor(kPauseForEachGuest * static_cast<int64_t>(guests_.size()));
    poll(fds.data(), fds.size(), PollTimeout(NextDeadline()));
    if (fds[0].revents != 0) wake_.Clear();
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (fds[2 + i].revents != 0) Serve(guests_[i].get());
    }
    for (int i = 0; fds[1].revents != 0 && i < kAcceptAtOnce && Accept(); ++i) {
    }
    RemoveEnded();
  }
}

int64_t TcpHost::NextDeadline() const {
  int64_t next = next_beat_ns_;
  for (const auto& guest : guests_) next = std::min(next, DeadlineOf(*guest));
  if (full_until_ns_ > MonotonicNanos()) next = std::min(next, full_until_ns_);
  return next;
}

// Returns whether there was a connection.
bool TcpHost::Accept() {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  UniqueFd socket(
      accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (IsOutOfDescriptors(errno)) full_until_ns_ = After(kFullPause);
    return false;
  }
  TuneConnection(socket.get());
  const auto is_stranger = [](const auto& guest) { return guest->agent.empty(); };
  if (static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger)) >= kMostStrangers) {
    guests_.erase(std::find_if(guests_.begin(), guests_.end(), is_stranger));
  }
  guests_.push_back(
      std::make_unique<Guest>(std::move(socket), AddressText(address, length), secret_, MonotonicNanos()));
  Serve(guests_.back().get());
  return true;
}

void TcpHost::Serve(Guest* guest) {
  for (const std::string& message : guest->stream.Serve()) Take(guest, message);
  if (guest->stream.refused()) RecordRefusal(*guest);
}

void TcpHost::Take(Guest* guest, absl::string_view message) {
  if (message.empty()) return;
  const char type = message[0];
  message.remove_prefix(1);
  // A stranger is not heard, so its time runs out.
  if (guest->agent.empty()) {
    if (type == kHello) Welcome(guest, message);
    return;
  }
  guest->heard_ns = MonotonicNanos();
  if (type == kPost) {
    view_->SetAgent(guest->agent, std::string(message));
  } else if (type == kFarewell) {
    view_->EraseAgent(guest->agent);
    guest->agent.clear();
  }
}

void TcpHost::Welcome(Guest* guest, absl::string_view hello) {
  const std::vector<std::string> ids = absl::StrSplit(hello, absl::MaxSplits('\n', 1));
  if (ids.size() != 2 || ids[0] != options_.job_id || ids[1].empty()) {
    guest->wrong_job_id = absl::StrCat("\"", Printable(ids[0]), "\"");
    guest->stream.Refuse(
        absl::StrCat("the job there has the id \"", Printable(options_.job_id), "\", not \"", Printable(ids[0]), "\""));
    return;
  }
  for (const auto& other : guests_) {
    if (other->agent == ids[1]) other->agent.clear();  // the agent has connected again
  }
  guest->agent = ids[1];
  guest->heard_ns = MonotonicNanos();
  guest->stream.set_max_message(kMaxPost);
  guest->stream.Send(absl::string_view(&kWelcome, 1));
}

void TcpHost::RecordRefusal(const Guest& guest) {
  if (!options_.on_notice || noticed_.size() >= kMostNotices || !noticed_.insert(guest.from).second) return;
  options_.on_notice(absl::StrCat(
      "a launcher at ", guest.from, " was refused: ",
      guest.wrong_job_id.empty()
          ? (options_.secret ? "it has another secret (LOCKSTEP_JOB_SECRET)"
                             : "it has a secret (LOCKSTEP_JOB_SECRET), and this node has none")
          : absl::StrCat("its job has the id ", guest.wrong_job_id, ", not \"", Printable(options_.job_id), "\"")));
}

// A guest that has not taken the decision before yet gets only the latest one later. So do the guests for which there
// is no room: a decision grows with the number of guests, and so does the number of its copies.
void TcpHost::SendDecision() {
  uint64_t number = 0;
  std::string message;
  const auto waits = [&number](const std::unique_ptr<Guest>& guest) {
    return !guest->agent.empty() && guest->decision != number && guest->stream.unsent_bytes() == 0;
  };
  {
    MutexLock lock(mutex_);
    number = decisions_;
    if (std::none_of(guests_.begin(), guests_.end(), waits)) return;
    message = absl::StrCat(std::string(1, kDecision), decision_);
  }
  size_t unsent = 0;
  for (const auto& guest : guests_) unsent += guest->stream.unsent_bytes();
  for (const auto& guest : guests_) {
    if (!waits(guest)) continue;
    if (unsent > kMostUnsentBytes) return;
    guest->decision = number;
    guest->stream.Send(message);
    Serve(guest.get());
    unsent += guest->stream.unsent_bytes();
  }
}

void TcpHost::SendBeats() {
  const int64_t now = MonotonicNanos();
  if (now < next_beat_ns_) return;
  next_beat_ns_ = After(now, BeatInterval(options_.time_to_live));
  for (const auto& guest : guests_) {
    if (guest->agent.empty() || guest->stream.unsent_bytes() > 0) continue;
    guest->stream.Send(absl::string_view(&kBeat, 1));
    Serve(guest.get());
  }
}

// When the guest is removed unless it is heard from.
int64_t TcpHost::DeadlineOf(const Guest& guest) const {
  if (guest.agent.empty()) return guest.stream.end().ok() ? After(guest.heard_ns, kHelloTimeout) : 0;
  const int64_t silent = After(guest.heard_ns, HostPatience(options_.time_to_live));
  return guest.ended_ns == 0 ? silent : std::min(silent, After(guest.ended_ns, kHostWaitsForReturn));
}

// After everything that has arrived was read, so a pause of this process is not taken for the others' silence.
void TcpHost::RemoveEnded() {
  const int64_t now = MonotonicNanos();
  for (const auto& guest : guests_) {
    if (!guest->stream.end().ok() && guest->ended_ns == 0) guest->ended_ns = now;
    if (!guest->agent.empty() && now >= DeadlineOf(*guest)) view_->EraseAgent(guest->agent);
  }
  const auto is_over = [&](const std::unique_ptr<Guest>& guest) { return now >= DeadlineOf(*guest); };
  guests_.erase(std::remove_if(guests_.begin(), guests_.end(), is_over), guests_.end());
}

}  // namespace lockstep::launch
