#include "lockstep/tools/launch/internal/regrouper.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/tools/launch/internal/deadline.h"
#include "lockstep/tools/launch/internal/master_socket.h"
#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch::internal {
namespace {

using Kind = Membership::Decision::Kind;

// One process cannot keep the launcher busy for longer at a time.
constexpr int kMostMessages = 16;

Membership::Limits LimitsOf(const LaunchOptions& options) {
  Membership::Limits limits;
  limits.ranks = options.nproc_per_node;
  limits.spares = options.spares;
  limits.max_restarts = options.max_restarts;
  limits.restart_window = options.restart_window;
  return limits;
}

Membership::Ask AskOf(const JoinOptions& join) {
  Membership::Ask ask;
  ask.min_ranks = join.min_ranks;
  ask.max_restarts = join.max_restarts;
  ask.leave_timeout = std::max(join.leave_timeout, absl::ZeroDuration());
  ask.reason = join.reason;
  return ask;
}

}  // namespace

Regrouper::Regrouper(const Generation& place, const LaunchOptions& options, bool alone)
    : place_(place),
      alone_(alone),
      watcher_(WatcherOf(options.watcher)),
      links_(options.nproc_per_node + options.spares),
      membership_(LimitsOf(options), MonotonicTime()) {}

void Regrouper::SetMaster(const std::string& address, int port) {
  master_addr_ = address;
  master_port_ = port;
}

absl::StatusOr<UniqueFd> Regrouper::Open(int slot) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return DescriptorError("launch: no control socket for a rank", errno, absl::StatusCode::kResourceExhausted);
  }
  links_[slot] = AboveStdio(UniqueFd(ends[0]));
  UniqueFd end = AboveStdio(UniqueFd(ends[1]));
  if (links_[slot].valid() && end.valid()) return end;
  return DescriptorError("launch: no control socket for a rank", errno, absl::StatusCode::kResourceExhausted);
}

void Regrouper::AppendTo(std::vector<pollfd>* fds) const {
  for (const UniqueFd& link : links_) fds->push_back({link.get(), POLLIN, 0});
}

void Regrouper::Serve(const pollfd* fds) {
  for (size_t slot = 0; slot < links_.size(); ++slot) {
    if (fds[slot].revents != 0 && links_[slot].valid()) Receive(static_cast<int>(slot));
  }
  Update();
}

// A process that writes what no rank writes is no longer listened to.
void Regrouper::Receive(int slot) {
  for (int i = 0; i < kMostMessages; ++i) {
    const absl::StatusOr<Packet> packet = ReceivePacket(links_[slot].get());
    if (packet.ok() && packet->text.empty()) return;
    const absl::StatusOr<RankMessage> message =
        packet.ok() ? DecodeRankMessage(packet->text) : absl::StatusOr<RankMessage>(packet.status());
    if (!message.ok()) {
      links_[slot].Close();
      return;
    }
    if (message->kind == RankMessage::Kind::kProgress) {
      membership_.OnProgress(slot, message->step);
      watcher_.NoteStep(slot, message->step, MonotonicNanos());
    } else {
      OnReady(slot, *message);
    }
  }
}

void Regrouper::OnReady(int slot, const RankMessage& message) {
  watcher_.NoteWaiting(slot, true);
  if (alone_) {
    membership_.OnReady(slot, message.left, AskOf(message.join), MonotonicTime());
    return;
  }
  if (message.left != 0) return;  // the launchers of all nodes are about to end their ranks
  LauncherMessage answer;
  RankGeneration& generation = answer.generation;
  generation.number = place_.number;
  generation.rank = place_.first_rank + slot;
  generation.world_size = place_.world_size;
  generation.local_rank = slot;
  generation.local_world_size = static_cast<int>(links_.size());
  generation.node_rank = place_.node_rank;
  generation.nnodes = place_.nnodes;
  generation.master_addr = master_addr_;
  generation.master_port = master_port_;
  Send(slot, answer);
  watcher_.NoteWaiting(slot, false);
}

bool Regrouper::OnEnd(int slot, bool failed, const std::string& cause) {
  links_[slot].Close();
  if (!alone_) return false;
  bool goes_on = true;
  if (failed) {
    goes_on = membership_.OnFailure(slot, cause, MonotonicTime());
  } else {
    membership_.OnSuccess(slot);
  }
  if (goes_on) Update();
  return goes_on;
}

void Regrouper::Update() {
  membership_.Update(MonotonicTime());
  if (!membership_.verdict().ok()) status_ = membership_.verdict();
  for (Membership::Decision& decision : membership_.Take()) {
    if (decision.kind == Kind::kForm) SendGeneration(decision);
    if (decision.kind == Kind::kAfterStep || decision.kind == Kind::kNow) SendOrder(decision);
    decisions_.push_back(std::move(decision));
  }
}

int64_t Regrouper::next_look() const {
  const absl::Time time = membership_.next_look();
  return time == absl::InfiniteFuture() ? kNever : After(std::max(time - MonotonicTime(), absl::ZeroDuration()));
}

// A rank that does not read, or has ended, does not leave its generation either, and is found so.
void Regrouper::Send(int slot, const LauncherMessage& message, int passed) {
  if (links_[slot].valid()) SendPacket(links_[slot].get(), Encode(message), passed).IgnoreError();
}

void Regrouper::SendGeneration(const Membership::Decision& decision) {
  const absl::StatusOr<MasterSocket> master = ListenOnLoopback();
  if (!master.ok()) {
    status_ = master.status();
    return;
  }
  LauncherMessage message;
  RankGeneration& generation = message.generation;
  generation.number = membership_.generation();
  generation.world_size = generation.local_world_size = static_cast<int>(decision.slots.size());
  generation.master_addr = "127.0.0.1";
  generation.master_port = master->port;
  generation.reason = decision.reason;
  for (size_t rank = 0; rank < decision.slots.size(); ++rank) {
    generation.rank = static_cast<int>(rank);
    generation.local_rank = membership_.local_rank(decision.slots[rank]);
    Send(decision.slots[rank], message, rank == 0 ? master->fd.get() : -1);
    watcher_.NoteWaiting(decision.slots[rank], false);
  }
  watcher_.NoteRegroup(generation.number, place_.restarts + membership_.restarts(), decision.slots);
}

void Regrouper::SendOrder(const Membership::Decision& decision) {
  LauncherMessage message;
  message.kind =
      decision.kind == Kind::kNow ? LauncherMessage::Kind::kRegroupNow : LauncherMessage::Kind::kRegroupAfterStep;
  message.generation.number = membership_.generation();
  message.generation.reason = decision.reason;
  for (const int slot : decision.slots) Send(slot, message);
}

}  // namespace lockstep::launch::internal
