#include "lockstep/tools/launch/internal/regrouper.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptors.h"
#include "lockstep/base/printable.h"
#include "lockstep/tools/launch/internal/deadline.h"
#include "lockstep/tools/launch/internal/master_socket.h"
#include "lockstep/tools/launch/internal/report_file.h"

namespace lockstep::launch::internal {
namespace {

using Kind = Membership::Decision::Kind;

// Four ranks on two cores regroup in a fifth less time then.
constexpr absl::Duration kHeadStart = absl::Milliseconds(200);

// One process cannot keep the launcher busy for longer at a time.
constexpr int kMostMessages = 16;

Membership::Limits LimitsOf(const LaunchOptions& options) {
  Membership::Limits limits;
  limits.ranks = options.nproc_per_node;
  limits.spares = options.spares;
  limits.max_restarts = options.max_restarts;
  limits.restart_window = options.restart_window;
  limits.head_start = kHeadStart;
  return limits;
}

Membership::Ask AskOf(const JoinOptions& join) {
  Membership::Ask ask;
  ask.min_ranks = join.min_ranks;
  ask.max_ranks = join.max_ranks;
  ask.max_restarts = join.max_restarts;
  ask.leave_timeout = std::max(join.leave_timeout, absl::ZeroDuration());
  ask.reason = join.reason;
  return ask;
}

}  // namespace

Regrouper::Regrouper(const Generation& place, const LaunchOptions& options, Nodes nodes)
    : place_(place),
      nodes_(nodes),
      watcher_(WatcherOf(options.watcher)),
      links_(options.nproc_per_node + options.spares),
      owes_finish_(options.nproc_per_node + options.spares),
      has_finished_(options.nproc_per_node + options.spares),
      stall_watch_(options.stall_timeout),
      on_notice_(options.on_notice),
      membership_(LimitsOf(options), MonotonicTime()),
      slots_(options.nproc_per_node + options.spares) {}

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
  owes_finish_[slot] = has_finished_[slot] = false;
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
    if (message->kind == RankMessage::Kind::kStays) {
      OnStays();
    } else if (message->kind == RankMessage::Kind::kProgress) {
      if (nodes_ == Nodes::kOne) membership_.OnProgress(slot, message->step);
      if (nodes_ == Nodes::kAgents) slots_.OnProgress(slot, message->step);
      watcher_.NoteStep(slot, message->step, MonotonicNanos());
      stall_watch_.OnStep(MonotonicNanos());
    } else if (message->kind == RankMessage::Kind::kStalls) {
      watcher_.NoteStall(message->join.reason);
      stall_watch_.OnReport(message->join.reason, static_cast<int>(message->step), MonotonicNanos());
    } else if (message->kind == RankMessage::Kind::kFinished) {
      OnFinished(slot, message->all);
    } else if (message->kind == RankMessage::Kind::kEndsJob) {
      if (nodes_ == Nodes::kOne) membership_.OnEndJob(message->join.reason);
      if (nodes_ == Nodes::kAgents) slots_.OnEndJob(slot, message->join.reason);
    } else {
      OnReady(slot, *message);
    }
  }
}

void Regrouper::OnStays() {
  asked_ = true;
  if (nodes_ == Nodes::kOne) membership_.OnStays();
  if (nodes_ == Nodes::kAgents) slots_.OnStays();
}

void Regrouper::OnFinished(int slot, bool all) {
  owes_finish_[slot] = false;
  has_finished_[slot] = true;
  all_done_ |= all;
  if (nodes_ == Nodes::kOne) membership_.OnDone(slot, all);
  if (nodes_ == Nodes::kAgents) slots_.OnDone(slot, all);
}

void Regrouper::OnReady(int slot, const RankMessage& message) {
  asked_ = true;
  watcher_.NoteWaiting(slot, true);
  switch (nodes_) {
    case Nodes::kOne:
      membership_.OnReady(slot, message.left, AskOf(message.join), MonotonicTime());
      break;
    case Nodes::kStatic:
      OnStaticReady(slot, message.left);
      break;
    case Nodes::kAgents:
      if (!next_master_.fd.valid()) HoldNextMaster();
      slots_.OnReady(slot, message.left, AskOf(message.join));
      break;
  }
}

void Regrouper::OnStaticReady(int slot, int64_t left) {
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
  Send(slot, answer);
  owes_finish_[slot] = true;
  watcher_.NoteWaiting(slot, false);
}

// Its last words may not have been read yet, nor what others have said before, such as that all have done their work.
bool Regrouper::EndedEarly(int slot) {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].valid()) Receive(static_cast<int>(i));
  }
  return owes_finish_[slot];
}

bool Regrouper::OnEnd(int slot, const NodeFailure& failure) {
  links_[slot].Close();
  if (nodes_ == Nodes::kStatic) return all_done_;
  if (nodes_ == Nodes::kAgents) return slots_.OnEnd(slot, failure);
  if (failure.status.ok()) {
    membership_.OnSuccess(slot);
    return true;
  }
  Membership::Cause cause;
  cause.text = std::string(failure.status.message());
  cause.exited = !failure.killed;
  return membership_.OnFailure(slot, cause, MonotonicTime());
}

bool Regrouper::goes_on() const { return nodes_ == Nodes::kAgents ? kept() : membership_.awaits_start(); }

int64_t Regrouper::generation() const {
  return nodes_ == Nodes::kAgents ? slots_.ranks().generation : membership_.generation();
}

int Regrouper::world_size() const {
  return nodes_ == Nodes::kAgents ? slots_.ranks().world_size : static_cast<int>(membership_.members().size());
}

int Regrouper::rank(int slot) const {
  return nodes_ == Nodes::kAgents ? slots_.ranks().slots[slot].rank : membership_.rank(slot);
}

bool Regrouper::IsMember(int slot) const {
  if (nodes_ != Nodes::kAgents) return membership_.memory().slots[slot].state == Membership::State::kMember;
  const SlotState& process = slots_.slots()[slot];
  return process.phase == SlotState::Phase::kReady && !process.done && rank(slot) >= 0 && process.left < generation();
}

void Regrouper::Obey(NodeRanks ranks) {
  if (!ranks.kept) return;
  slots_.OnRanks(std::move(ranks));
  for (const NodeSlots::Action& action : slots_.Take()) Carry(action);
  // Also if rank 0 has failed before it was told: the generation has used the port.
  const NodeRanks& obeyed = slots_.ranks();
  if (obeyed.formed && obeyed.node_rank == 0 && obeyed.master_port == next_master_.port) HoldNextMaster();
}

void Regrouper::Carry(const NodeSlots::Action& action) {
  const NodeRanks& ranks = slots_.ranks();
  LauncherMessage order;
  switch (action.kind) {
    case NodeSlots::Action::Kind::kGeneration:
      if (std::exchange(told_, ranks.generation) != ranks.generation) NoteRanks();
      SendRanks(action.slot);
      break;
    case NodeSlots::Action::Kind::kOrder:
      order.kind = ranks.order == RegroupOrder::kNow ? LauncherMessage::Kind::kRegroupNow
                                                     : LauncherMessage::Kind::kRegroupAfterStep;
      order.generation.number = ranks.generation;
      order.generation.reason = ranks.order_reason;
      Send(action.slot, order);
      Decide(ranks.order == RegroupOrder::kNow ? Kind::kNow : Kind::kAfterStep, action.slot, ranks.order_reason);
      break;
    case NodeSlots::Action::Kind::kStart:
      ++restarts_here_;
      Decide(Kind::kStart, action.slot, "");
      break;
    case NodeSlots::Action::Kind::kKill:
      Decide(Kind::kKill, action.slot, ranks.order_reason);
      break;
    case NodeSlots::Action::Kind::kGiveUp:
      Decide(Kind::kGiveUp, action.slot, std::string(slots_.slots()[action.slot].failure.status.message()));
      break;
  }
}

void Regrouper::Decide(Kind kind, int slot, const std::string& reason) {
  Membership::Decision decision;
  decision.kind = kind;
  decision.slots = {slot};
  decision.reason = reason;
  decisions_.push_back(std::move(decision));
}

// The first process of this node is about to hear of the generation.
void Regrouper::NoteRanks() {
  const NodeRanks& ranks = slots_.ranks();
  Membership::Decision decision;
  decision.kind = Kind::kForm;
  decision.reason = ranks.reason;
  std::vector<int> by_slot;
  for (size_t slot = 0; slot < ranks.slots.size(); ++slot) {
    by_slot.push_back(ranks.slots[slot].rank);
    if (by_slot.back() >= 0) decision.slots.push_back(static_cast<int>(slot));
  }
  decisions_.push_back(std::move(decision));
  watcher_.NoteRegroup(ranks.generation, ranks.restarts, by_slot);
  stall_watch_.OnGeneration(MonotonicNanos());
}

void Regrouper::SendRanks(int slot) {
  const NodeRanks& ranks = slots_.ranks();
  LauncherMessage message;
  RankGeneration& generation = message.generation;
  generation.number = ranks.generation;
  generation.rank = ranks.slots[slot].rank;
  generation.world_size = ranks.world_size;
  generation.local_rank = ranks.slots[slot].local_rank;
  generation.local_world_size = ranks.local_world_size;
  generation.node_rank = ranks.node_rank;
  generation.nnodes = ranks.nnodes;
  generation.master_addr = ranks.master_addr;
  generation.master_port = ranks.master_port;
  generation.reason = ranks.reason;
  watcher_.NoteWaiting(slot, false);
  owes_finish_[slot] = true;
  const bool listens = generation.rank == 0 && generation.master_port == next_master_.port;
  Send(slot, message, listens ? next_master_.fd.get() : -1);
}

// While the socket before is open, so that the port is another one.
void Regrouper::HoldNextMaster() {
  absl::StatusOr<MasterSocket> master = ListenOnAllAddresses();
  if (master.ok()) {
    next_master_ = *std::move(master);
    slots_.NoteChange();
  } else {
    status_ = master.status();
  }
}

void Regrouper::UpdateStalls() {
  const int64_t now_ns = MonotonicNanos();
  const std::string line = stall_watch_.TakeLine(now_ns);
  if (!line.empty() && on_notice_) on_notice_(Printable(line));
  const std::optional<int> culprit = stall_watch_.TakeCulprit(now_ns);
  for (int slot = 0; culprit && slot < static_cast<int>(links_.size()); ++slot) {
    if (links_[slot].valid() && rank(slot) == *culprit && IsMember(slot)) stalled_ = slot;
  }
}

void Regrouper::Update() {
  UpdateStalls();
  if (nodes_ != Nodes::kOne) return;
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
  const int64_t stall = stall_watch_.next_look();
  if (time == absl::InfiniteFuture()) return stall;
  return std::min(stall, After(std::max(time - MonotonicTime(), absl::ZeroDuration())));
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
    owes_finish_[decision.slots[rank]] = true;
    watcher_.NoteWaiting(decision.slots[rank], false);
  }
  std::vector<int> by_slot(links_.size(), -1);
  for (const int slot : decision.slots) by_slot[slot] = membership_.rank(slot);
  watcher_.NoteRegroup(generation.number, place_.restarts + membership_.restarts(), by_slot);
  stall_watch_.OnGeneration(MonotonicNanos());
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
