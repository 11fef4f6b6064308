#include "lockstep/launch/node/rank_links.h"

#include <errno.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/node/master_socket.h"
#include "lockstep/launch/report/report_file.h"

namespace lockstep::launch {
namespace {

// One process cannot keep the launcher busy for longer at a time.
constexpr int kMostMessages = 16;

}  // namespace

RankLinks::RankLinks(const NodeStart& place, const LaunchOptions& options, Nodes nodes)
    : place_(place),
      nodes_(nodes),
      watcher_(WatcherOf(options.watcher)),
      links_(options.nproc_per_node + options.spares),
      stall_watch_(options.stall_timeout),
      on_notice_(options.on_notice),
      slots_(options.nproc_per_node + options.spares) {}

void RankLinks::SetMaster(const std::string& address, int port) {
  master_addr_ = address;
  master_port_ = port;
}

absl::StatusOr<UniqueFd> RankLinks::Open(int slot) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return DescriptorError("launch: no control socket for a rank", errno, absl::StatusCode::kResourceExhausted);
  }
  links_[slot] = Link();
  links_[slot].fd = AboveStdio(UniqueFd(ends[0]));
  UniqueFd end = AboveStdio(UniqueFd(ends[1]));
  if (links_[slot].fd.valid() && end.valid()) return end;
  return DescriptorError("launch: no control socket for a rank", errno, absl::StatusCode::kResourceExhausted);
}

void RankLinks::AppendTo(std::vector<pollfd>* fds) const {
  for (const Link& link : links_) fds->push_back({link.fd.get(), POLLIN, 0});
}

void RankLinks::Serve(const pollfd* fds) {
  for (size_t slot = 0; slot < links_.size(); ++slot) {
    if (fds[slot].revents != 0 && links_[slot].fd.valid()) Receive(static_cast<int>(slot));
  }
}

// A process that writes what no rank writes is no longer listened to.
void RankLinks::Receive(int slot) {
  for (int i = 0; i < kMostMessages; ++i) {
    const absl::StatusOr<Packet> packet = ReceivePacket(links_[slot].fd.get());
    if (packet.ok() && packet->text.empty()) return;
    const absl::StatusOr<RankMessage> message =
        packet.ok() ? DecodeRankMessage(packet->text) : absl::StatusOr<RankMessage>(packet.status());
    if (!message.ok()) {
      links_[slot].fd.Close();
      return;
    }
    if (message->kind == RankMessage::Kind::kStays) {
      OnStays();
    } else if (message->kind == RankMessage::Kind::kProgress) {
      slots_.OnProgress(slot, message->step);
      watcher_.OnStep(slot, message->step, MonotonicNanos());
      stall_watch_.OnStep(MonotonicNanos());
    } else if (message->kind == RankMessage::Kind::kStalls) {
      watcher_.OnStall(message->join.reason);
      stall_watch_.OnReport(message->join.reason, static_cast<int>(message->step), MonotonicNanos());
    } else if (message->kind == RankMessage::Kind::kFinished) {
      OnFinished(slot, message->all);
      return;  // what comes next, such as that it asks for more to do, is another event for the leader
    } else if (message->kind == RankMessage::Kind::kFails) {
      links_[slot].failure = message->join.failure;
    } else if (message->kind == RankMessage::Kind::kUnfit) {
      slots_.OnUnfit(slot);
    } else if (message->kind == RankMessage::Kind::kEndsJob) {
      slots_.OnEndJob(slot, message->join.reason);
    } else {
      OnReady(slot, *message);
    }
  }
}

void RankLinks::OnStays() {
  asked_ = true;
  if (nodes_ != Nodes::kStatic) slots_.OnStays();
}

void RankLinks::OnFinished(int slot, bool all) {
  links_[slot].owes_finish = false;
  links_[slot].has_finished = true;
  all_done_ |= all;
  slots_.OnDone(slot, all);
}

void RankLinks::OnReady(int slot, const RankMessage& message) {
  asked_ = true;
  watcher_.OnWaiting(slot, true);
  if (nodes_ == Nodes::kStatic) return OnStaticReady(slot, message.left);
  if (!next_master_.fd.valid()) HoldNextMaster();
  slots_.OnReady(slot, message.left, message.join);
}

void RankLinks::OnStaticReady(int slot, int64_t left) {
  if (left != 0) return;  // the launchers of all nodes are about to end their ranks
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
  generation.regroups = false;
  Send(slot, answer);
  links_[slot].owes_finish = true;
  watcher_.OnWaiting(slot, false);
}

void RankLinks::ReadAll() {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].fd.valid()) Receive(static_cast<int>(i));
  }
}

bool RankLinks::OnEnd(int slot, Failure failure) {
  if (links_[slot].failure) failure.own = links_[slot].failure;
  links_[slot].fd.Close();
  if (nodes_ == Nodes::kStatic) return all_done_;
  return slots_.OnEnd(slot, std::move(failure));
}

void RankLinks::Apply(NodeRanks ranks) {
  if (!ranks.stays()) return;
  slots_.OnRanks(std::move(ranks));
  for (const NodeSlots::Action& action : slots_.Take()) Do(action);
  // Also if rank 0 has failed before it was told: the generation has used the port.
  if (slots_.has_used(next_master_.port)) HoldNextMaster();
}

void RankLinks::Do(const NodeSlots::Action& action) {
  if (action.kind == NodeSlots::Action::Kind::kGeneration) SendGeneration(action.slot);
  if (action.kind == NodeSlots::Action::Kind::kOrder) SendOrder(action.slot);
  restarts_here_ += action.kind == NodeSlots::Action::Kind::kStart;
  actions_.push_back(action);
}

void RankLinks::SendOrder(int slot) {
  LauncherMessage order;
  order.kind = plan().order == RegroupOrder::kNow ? LauncherMessage::Kind::kRegroupNow
                                                  : LauncherMessage::Kind::kRegroupAfterStep;
  order.generation.number = plan().generation;
  order.generation.reason = plan().order_reason;
  Send(slot, order);
}

void RankLinks::SendGeneration(int slot) {
  if (std::exchange(told_, plan().generation) != plan().generation) RecordGeneration();
  LauncherMessage message;
  message.generation = slots_.GenerationOf(slot);
  watcher_.OnWaiting(slot, false);
  links_[slot].owes_finish = true;
  const bool listens = message.generation.rank == 0 && message.generation.master_port == next_master_.port;
  Send(slot, message, listens ? next_master_.fd.get() : -1);
}

// The first process of this node is about to hear of the generation.
void RankLinks::RecordGeneration() {
  std::vector<int> ranks;
  for (size_t slot = 0; slot < links_.size(); ++slot) ranks.push_back(slots_.place(static_cast<int>(slot)).rank);
  watcher_.OnRegroup(plan().generation, plan().restarts, ranks);
  stall_watch_.OnGeneration(MonotonicNanos());
}

// While the socket before is open, so that the port is another one.
void RankLinks::HoldNextMaster() {
  absl::StatusOr<MasterSocket> master = nodes_ == Nodes::kOne ? ListenOnLoopback() : ListenOnAllAddresses();
  if (master.ok()) {
    next_master_ = *std::move(master);
    slots_.RecordChange();
  } else {
    status_ = master.status();
  }
}

void RankLinks::UpdateStalls() {
  const int64_t now_ns = MonotonicNanos();
  const std::string line = stall_watch_.TakeLine(now_ns);
  if (!line.empty() && on_notice_) on_notice_(Printable(line));
  const std::optional<int> culprit = stall_watch_.TakeCulprit(now_ns);
  for (int slot = 0; culprit && slot < static_cast<int>(links_.size()); ++slot) {
    if (links_[slot].fd.valid() && slots_.IsMember(slot) && slots_.place(slot).rank == *culprit) stalled_ = slot;
  }
}

// A rank that does not read, or has ended, does not leave its generation either, and is found so.
void RankLinks::Send(int slot, const LauncherMessage& message, int passed) {
  if (links_[slot].fd.valid()) SendPacket(links_[slot].fd.get(), Encode(message), passed).IgnoreError();
}

}  // namespace lockstep::launch
