#include "lockstep/comm/watch/internal/hub.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/handshake.h"
#include "lockstep/comm/watch/internal/watch_thread.h"

namespace lockstep::comm::internal {
namespace {

constexpr uint64_t kWakeId = 0;
constexpr uint64_t kListenerId = 1;
constexpr uint64_t kFirstPeerId = 2;

constexpr size_t kMaxHelloText = kNonceText + kProofText;
constexpr size_t kMostStrangers = 64;  // besides one for each rank
constexpr size_t kMostHandles = 256;   // on processes that have not connected
constexpr auto kStrangerPatience = std::chrono::seconds(5);
constexpr auto kHandshakePatience = std::chrono::milliseconds(100);  // before another connection gets its descriptor
constexpr auto kFarewellPatience = std::chrono::milliseconds(150);
constexpr auto kLatecomerInterval = std::chrono::milliseconds(10);
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

std::vector<ProcessHandle> Handles(const HubOptions& options) {
  // Until the ranks have connected, handles on many of them would double the descriptors that the hub needs.
  const bool socket_will_do = options.on_one_host && ProcessHandle::SocketsKeepHandles();
  const bool few = options.ranks.size() <= kMostHandles || !socket_will_do;
  const auto at_first = few ? ProcessHandle::AtFirst::kOpen : ProcessHandle::AtFirst::kNone;
  std::vector<ProcessHandle> handles;
  for (const RankIdentity& identity : options.ranks) {
    handles.emplace_back(identity, options.ranks[options.rank], at_first);
  }
  return handles;
}

}  // namespace

Hub::Hub(HubOptions options, UniqueFd listener, Participant* participant)
    : options_(std::move(options)),
      participant_(participant),
      processes_(Handles(options_)),
      arbiter_(
          options_.ranks, options_.rank, options_.joining_deadline,
          [this](int rank, const Frame& frame) {
            if (rank == options_.rank) {
              to_own_rank_.push_back(frame);
            } else if (by_rank_[rank]) {
              by_rank_[rank]->connection.Send(frame);
            }
          },
          [this](const RankIdentity& identity) { return processes_[identity.rank].Fate(); }),
      listener_(std::move(listener)),
      next_id_(kFirstPeerId),
      by_rank_(options_.ranks.size()) {
  arbiter_.Join(options_.rank);
  if (arbiter_.complete()) CloseListener();
}

absl::Status Hub::Start() {
  LOCKSTEP_ASSIGN_OR_RETURN(wake_, Event::Create("making the watch's eventfd"));
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_.valid() && listener_.valid()) spare_ = UniqueFd(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
  if (!epoll_.valid() || spare_.valid() != listener_.valid()) return DescriptorError("making the watch's epoll", errno);
  Watch(wake_.fd(), kWakeId);
  if (listener_.valid()) Watch(listener_.get(), kListenerId);
  LOCKSTEP_ASSIGN_OR_RETURN(thread_, StartWatchThread([this] { Run(); }));
  return absl::OkStatus();
}

Hub::~Hub() {
  if (thread_.joinable()) Leave(participant_->Farewell());
}

void Hub::Watch(int fd, uint64_t id) {
  epoll_event event = {};
  // A connection reports each change once, and is read and written until it would block. So the set of watched events
  // never changes, whichever thread sends.
  event.events = id >= kFirstPeerId ? EPOLLIN | EPOLLOUT | EPOLLET : EPOLLIN;
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Hub::CloseListener() {
  listener_.Close();
  spare_.Close();
}

void Hub::Send(const Frame& frame) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arbiter_.Receive(options_.rank, frame, Clock::now());
  }
  wake_.Set();
}

void Hub::AwaitLatecomers(Clock::duration patience) {
  const Clock::time_point due = Clock::now() + patience;
  while (Clock::now() < due) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!arbiter_.ExpectsMore()) return;
    }
    std::this_thread::sleep_for(kLatecomerInterval);
  }
}

void Hub::Leave(const Frame& farewell) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arbiter_.Receive(options_.rank, farewell, Clock::now());
    for (auto& entry : peers_) entry.second->connection.FinishSending();
    leaving_ = true;
    leaving_due_ = Clock::now() + kFarewellPatience;
  }
  wake_.Set();
  thread_.join();
}

bool Hub::Done(Clock::time_point now) const {
  const bool all_gone = std::all_of(by_rank_.begin(), by_rank_.end(), [](const Peer* peer) { return !peer; });
  return leaving_ && (all_gone || now >= leaving_due_);
}

void Hub::Run() {
  Clock::time_point due = Clock::now();
  while (true) {
    epoll_event events[64];
    const int ready = epoll_wait(epoll_.get(), events, 64, PollTimeout(due));
    const Clock::time_point now = Clock::now();
    std::vector<Frame> frames;
    absl::Status trouble;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int i = 0; i < ready; ++i) Handle(events[i].data.u64, now);
      due = std::min(arbiter_.Tick(now), TickStrangers(now));
      if (leaving_) due = std::min(due, leaving_due_);
      frames.swap(to_own_rank_);
      std::swap(trouble, trouble_);
      if (Done(now)) return;
    }
    for (const Frame& frame : frames) participant_->Deliver(frame);
    participant_->Abort(trouble);
    due = std::min(due, participant_->Tick(now));
  }
}

void Hub::Handle(uint64_t id, Clock::time_point now) {
  if (id == kWakeId) return wake_.Clear();
  if (id == kListenerId) return Accept(now);
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = *found->second;
  peer.connection.Flush();
  for (const Frame& frame : peer.connection.Receive()) {
    if (peer.rank >= 0) {
      arbiter_.Receive(peer.rank, frame, now);
    } else if (!Admit(peer, frame)) {
      peers_.erase(found);
      return;
    }
  }
  if (!peer.connection.ended()) return;
  if (peer.rank >= 0) {
    by_rank_[peer.rank] = nullptr;
    processes_[peer.rank].TakeFrom(peer.connection.fd());
    arbiter_.Lose(peer.rank, peer.connection.end(), now);
  }
  peers_.erase(found);
}

// Invalid, with errno, if there is none. If no descriptor is free, the oldest stranger is closed, since the newcomer
// may be a rank. But a recent connection may be a rank's too, and prove it in a moment. Then accepting waits, as for
// memory.
UniqueFd Hub::AcceptOne(Clock::time_point now) {
  while (true) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid() || !IsOutOfDescriptors(errno)) return fd;
    const auto stranger = std::find_if(peers_.begin(), peers_.end(),  // the oldest: ids are given in order
                                       [](const auto& entry) { return entry.second->rank < 0; });
    if (stranger == peers_.end()) return fd;
    if (now < stranger->second->since + kHandshakePatience) {
      errno = ENOBUFS;
      return fd;
    }
    peers_.erase(stranger);
  }
}

void Hub::Accept(Clock::time_point now) {
  while (listener_.valid()) {
    UniqueFd fd = AcceptOne(now);
    if (!fd.valid() && (IsOutOfDescriptors(errno) || errno == ENOBUFS || errno == ENOMEM)) {
      if (IsOutOfDescriptors(errno)) RunOutOfDescriptors(errno);
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accept_again_ = now + kAcceptPause;
      return;
    }
    if (!fd.valid() && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (!fd.valid()) continue;  // that peer has left again
    TuneConnection(fd.get());
    const uint64_t id = next_id_++;
    const auto& peer = peers_[id] = std::make_unique<Peer>(std::move(fd), kMaxHelloText, RandomToken(), now);
    strangers_.push_back(id);
    Watch(peer->connection.fd(), id);
    peer->connection.Send({Frame::Type::kChallenge, -1, 0, -1, 0, peer->challenge});
  }
}

void Hub::RunOutOfDescriptors(int error) {
  if (!spare_.valid()) return;
  spare_.Close();
  const size_t others = by_rank_.size() - 1;
  const size_t joined = std::count_if(by_rank_.begin(), by_rank_.end(), [](const Peer* peer) { return peer; });
  trouble_ = DescriptorError(absl::StrCat("accepting connection ", joined + 1, " of ", others), error);
}

bool Hub::Admit(Peer& peer, const Frame& hello) {
  const int rank = hello.rank;
  const bool belongs = hello.type == Frame::Type::kHello && rank >= 0 && rank < static_cast<int>(by_rank_.size()) &&
                       rank != options_.rank && !by_rank_[rank] &&
                       IsHello(hello.text, options_.token, peer.challenge, rank);
  if (!belongs) return false;
  peer.connection.Send(
      {Frame::Type::kProof, -1, 0, -1, 0, ProofText(options_.token, peer.challenge, hello.text, rank)});
  by_rank_[rank] = &peer;
  peer.rank = rank;
  peer.connection.set_max_text(kMaxFrameText);
  processes_[rank].LeaveTo(peer.connection.fd());
  if (arbiter_.Join(rank)) return true;
  by_rank_[rank] = nullptr;
  return false;
}

Clock::time_point Hub::TickStrangers(Clock::time_point now) {
  if (arbiter_.complete()) CloseListener();
  if (accept_again_ != Clock::time_point() && now >= accept_again_ && listener_.valid()) {
    accept_again_ = Clock::time_point();
    Watch(listener_.get(), kListenerId);
  }
  while (!strangers_.empty()) {
    const auto oldest = peers_.find(strangers_.front());
    const bool stranger = oldest != peers_.end() && oldest->second->rank < 0;
    const bool too_many = strangers_.size() > kMostStrangers + by_rank_.size();
    const bool late = stranger && now >= oldest->second->since + kStrangerPatience;
    if (stranger && !too_many && !late && !arbiter_.complete()) break;
    if (stranger) peers_.erase(oldest);
    strangers_.pop_front();
  }
  Clock::time_point next = Clock::time_point::max();
  if (!strangers_.empty()) next = peers_.at(strangers_.front())->since + kStrangerPatience;
  if (accept_again_ != Clock::time_point()) next = std::min(next, accept_again_);
  return next;
}

}  // namespace lockstep::comm::internal
